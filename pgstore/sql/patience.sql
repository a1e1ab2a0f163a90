-- Has the transaction wait for a lock as long as $1 says, and fail then. It locks nothing.
SELECT set_config('lock_timeout', $1::text, true)
