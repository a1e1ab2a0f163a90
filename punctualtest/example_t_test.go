package punctualtest_test

import "fmt"

// t stands in for the *testing.T of a test: examples are not given one.
var t exampleT

type exampleT struct{}

func (exampleT) Helper()             {}
func (exampleT) Cleanup(func())      {} // what an example holds ends with the process
func (exampleT) Logf(string, ...any) {}

func (exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
