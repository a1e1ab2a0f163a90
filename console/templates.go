package console

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"path"
	"strings"
	"sync"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are the parsed pages, by the code of the language and the name of the page. Each of
// them includes layout.html and parts.html.
type templates map[string]map[string]*template.Template

// content is what is embedded in the program, parsed. All consoles of a process share it, and
// nothing changes it.
type content struct {
	assets    assets
	languages []*language
	templates templates
}

// readContent returns the content. It parses the embedded files when it is called for the first
// time in the process.
var readContent = sync.OnceValues(func() (c *content, err error) {
	c = &content{}
	if c.assets, err = readAssets(); err != nil {
		return nil, err
	}
	if c.languages, err = readLanguages(); err != nil {
		return nil, err
	}
	c.templates, err = parseTemplates(c.languages)
	return c, err
})

func parseTemplates(languages []*language) (templates, error) {
	names, err := templateFiles.ReadDir("templates")
	if err != nil {
		return nil, fmt.Errorf("read templates: %w", err)
	}
	all := make(templates)
	for _, l := range languages {
		frame, err := template.New("").Funcs(template.FuncMap{"t": l.text, "pair": pair}).ParseFS(templateFiles, "templates/layout.html", "templates/parts.html")
		if err != nil {
			return nil, fmt.Errorf("read the layout: %w", err)
		}
		all[l.code] = make(map[string]*template.Template)
		for _, n := range names {
			page := strings.TrimSuffix(n.Name(), path.Ext(n.Name()))
			if page == "layout" || page == "parts" {
				continue
			}
			own, err := frame.Clone()
			if err == nil {
				own, err = own.ParseFS(templateFiles, "templates/"+n.Name())
			}
			if err != nil {
				return nil, fmt.Errorf("read page %s: %w", page, err)
			}
			all[l.code][page] = own
		}
	}
	return all, nil
}

func (t templates) execute(w io.Writer, language, page, part string, data any) error {
	own, ok := t[language][page]
	if !ok {
		return fmt.Errorf("there is no template of page %q in language %q", page, language)
	}
	return own.ExecuteTemplate(w, part, data)
}

// two is the data of a template that needs two values, in most cases the frame of the page and a
// value of its own. The template function "pair" makes it.
type two struct{ Frame, It any }

func pair(frame, it any) two { return two{frame, it} }
