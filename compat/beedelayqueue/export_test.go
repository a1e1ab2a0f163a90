package BeeDelayQueue

// ServerAddr is the address of the Redis that the tests share.
func ServerAddr() string { return shared.Addr }
