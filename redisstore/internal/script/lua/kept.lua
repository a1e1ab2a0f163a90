-- A call that was answered before gets that answer again. This file follows call.lua.
if kept then return kept end
