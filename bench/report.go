package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// bench report puts the tables of the newest run between the markers of docs/performance.md,
// leaves the words around them as they are, and draws the charts.

func reportCommand(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	flags.SetOutput(stderr)
	results := flags.String("results", "", "file of results, of which the last run counts; by default the last file in results/")
	page := flags.String("page", filepath.Join("..", "docs", "performance.md"), "page whose tables are written anew")
	images := flags.String("images", filepath.Join("..", "docs", "img"), "folder for the charts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	path := *results
	if path == "" {
		var err error
		if path, err = newestResults(resultsDir); err != nil {
			return err
		}
	}
	runs, err := readRuns(path)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fmt.Errorf("%s has no run: use bench run", path)
	}
	if err := writeReport(runs[len(runs)-1], *page, *images); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s and %s show %s\n", *page, *images, path)
	return nil
}

// resultsDir holds a file of results for each day, named so that they sort by time.
const resultsDir = "results"

func newestResults(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", fmt.Errorf("%s has no results: use bench run", dir)
	}
	sort.Strings(files)
	return files[len(files)-1], nil
}

func writeReport(r run, page, images string) error {
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text := string(old)
	for _, t := range tables {
		if text, err = fillIn(text, t.name, t.build(r)); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
	}
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	for _, c := range charts {
		if err := os.WriteFile(filepath.Join(images, c.file), []byte(c.draw(r).svg()), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(page, []byte(text), 0o644)
}

// fillIn replaces what stands between the markers of a table.
func fillIn(page, name, table string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	head, rest, ok := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", errors.New("the page needs the markers " + strings.TrimSpace(begin) + " and " + end)
	}
	return head + begin + table + end + tail, nil
}
