package punctual

// Judge lets tests outside the package see what the worker makes of a handler's error.
func Judge(err error) (Verb, string) {
	v, _, text := judge(err)
	return v, text
}
