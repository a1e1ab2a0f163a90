package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// bench report writes the tables of docs/performance.md and docs/lab/measurements.md between their
// markers, and draws the charts. Each part shows the newest run of the file that has results of the
// part. A part of which the file has no results stays as it is, and so does the text outside of the
// markers.

// part is the tables and charts about one subject: a store, the server, the console, or
// what one message leads to.
type part struct {
	// has tells whether a scenario belongs to the part.
	has func(scenario string) bool
	// alone, if not nil, tells whether a scenario that may be measured in a run of its own belongs
	// to the part too.
	alone  func(scenario string) bool
	tables []table
	charts []picture
}

// table builds the text that stands between the two markers with its name, on one of the pages.
type table struct {
	name  string
	build func(run) string
}

// picture is a chart with the name of its file.
type picture struct {
	file string
	draw func(run) chart
}

func onRedis(scenario string) bool { return strings.HasPrefix(scenario, "redis-") }

func onTopics(scenario string) bool { return scenario == topicsScenario }

func onPostgres(scenario string) bool {
	return strings.HasPrefix(scenario, "postgres-") && !onPostgresAlone(scenario)
}

// onPostgresAlone is true for the scenarios that take minutes each: lives beside a held snapshot,
// and those of ten million messages.
func onPostgresAlone(scenario string) bool {
	return scenario == postgresSize || strings.HasPrefix(scenario, heldName(""))
}

func embedded(scenario string) bool {
	return !onRedis(scenario) && !onTopics(scenario) && !onPostgres(scenario) && !onPostgresAlone(scenario) && !onServer(scenario) && !onConsole(scenario) && !onFollow(scenario)
}

func parts() []part {
	return []part{
		{has: embedded, tables: tables, charts: charts},
		{has: onRedis, alone: onTopics, tables: redisTables, charts: redisCharts},
		{has: onPostgres, alone: onPostgresAlone, tables: postgresTables},
		{has: onServer, tables: serverTables},
		{has: onConsole, tables: consoleTables},
		{has: onFollow, tables: followTables},
	}
}

// newest returns the newest run that has results of the part, with only these results. Results of
// scenarios for which alone is true are added, for each scenario from the newest run that has
// results of it.
func (p part) newest(runs []run) (run, bool) {
	r, found := newestWith(runs, p.has)
	if p.alone == nil || !found {
		return r, found
	}
	taken := make(map[string]bool)
	for _, other := range slices.Backward(runs) {
		for _, res := range other.results {
			if p.alone(res.Scenario) && !taken[res.Scenario] {
				r.results = append(r.results, res)
			}
		}
		for _, res := range other.results {
			taken[res.Scenario] = true
		}
	}
	return r, found
}

// newestWith returns the newest run that has results of scenarios for which has is true, with only
// these results.
func newestWith(runs []run, has func(scenario string) bool) (run, bool) {
	for _, r := range slices.Backward(runs) {
		only := run{machine: r.machine}
		for _, res := range r.results {
			if has(res.Scenario) {
				only.results = append(only.results, res)
			}
		}
		if len(only.results) > 0 {
			return only, true
		}
	}
	return run{}, false
}

func reportCommand(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("bench report", flag.ContinueOnError)
	flags.SetOutput(stderr)
	results := flags.String("results", "", "file of results, of which the last run of each part counts; by default the last file in results/")
	docs := flags.String("docs", filepath.Join("..", "docs"), "folder of the pages whose tables are written anew, with the charts in img")
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
	written := 0
	for _, p := range parts() {
		r, ok := p.newest(runs)
		if !ok {
			continue
		}
		if err := p.write(r, *docs); err != nil {
			return err
		}
		written++
	}
	if written == 0 {
		return fmt.Errorf("%s has no results: use bench run", path)
	}
	fmt.Fprintf(stderr, "%s shows %s\n", *docs, path)
	return nil
}

// resultsDir is the folder of the files of results, one for each day. Their names are dates, so
// that the order of the names is that of the days.
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

// pages have the tables: the aims, and all else.
var pages = []string{"performance.md", filepath.Join("lab", "measurements.md")}

// write writes the part's tables and charts into a folder as docs is one.
func (p part) write(r run, docs string) error {
	texts := make([]string, len(pages))
	for i, page := range pages {
		text, err := os.ReadFile(filepath.Join(docs, page))
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	for _, t := range p.tables {
		on := slices.IndexFunc(texts, func(text string) bool { return strings.Contains(text, beginOf(t.name)) })
		if on < 0 {
			return fmt.Errorf("one of %v in %s needs the marker %s", pages, docs, beginOf(t.name))
		}
		text, err := fillIn(texts[on], t.name, t.build(r))
		if err != nil {
			return fmt.Errorf("%s: %w", pages[on], err)
		}
		texts[on] = text
	}
	images := filepath.Join(docs, "img")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	for _, c := range p.charts {
		if err := os.WriteFile(filepath.Join(images, c.file), []byte(c.draw(r).svg()), 0o644); err != nil {
			return err
		}
	}
	for i, page := range pages {
		if err := os.WriteFile(filepath.Join(docs, page), []byte(texts[i]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// beginOf returns the marker behind which a table begins.
func beginOf(table string) string { return "<!-- begin " + table + " -->\n" }

// fillIn returns the page with another text between the markers of a table.
func fillIn(page, name, table string) (string, error) {
	begin, end := beginOf(name), "<!-- end "+name+" -->"
	head, rest, ok := strings.Cut(page, begin)
	_, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return "", errors.New("the page needs the markers " + strings.TrimSpace(begin) + " and " + end)
	}
	return head + begin + table + end + tail, nil
}
