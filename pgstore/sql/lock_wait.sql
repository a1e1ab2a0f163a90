-- Makes the transaction wait for each lock no longer than $1 says, and fail then. It locks nothing.
SELECT set_config('lock_timeout', $1::text, true)
