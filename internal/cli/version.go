package cli

import (
	"context"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Version prints which build this is: the module's version, the commit, and the Go release that
built it.`,
		Example: `  punctual version
  punctual version --json
  punctual version --json > version.json`,
		RunE: a.action(func(context.Context, []string) error { return a.showVersion() }),
	}
}

// versionJSON is what version prints.
type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitzero"` // built from changed files
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) showVersion() error {
	v := versionOf(debug.ReadBuildInfo())
	if a.json {
		return a.out.writeJSON(v)
	}
	a.printf("punctual %s %s %s\n", v.Version, v.Go, v.Platform)
	if v.Commit != "" {
		changed := ""
		if v.Modified {
			changed = ", with changes"
		}
		a.printf("commit %s of %s%s\n", v.Commit, v.Time, changed)
	}
	return nil
}

// versionOf reads what the build left in the binary. Only the Go release and the platform are
// always known.
func versionOf(b *debug.BuildInfo, ok bool) versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !ok {
		return v
	}
	if b.Main.Version != "" {
		v.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
