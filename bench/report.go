package main

import (
	"errors"
	"io"
)

func reportCommand(args []string, stderr io.Writer) error { return errors.New("report: not yet") }
