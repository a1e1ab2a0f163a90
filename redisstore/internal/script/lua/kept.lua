-- A call that was answered before gets that answer again. It stands behind call.lua.
if kept then return kept end
