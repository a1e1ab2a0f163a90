package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"
)

//go:embed assets/*
var assetFiles embed.FS

// asset is a file that pages load: the style sheet, the script or the icon.
type asset struct {
	mediaType string
	data      []byte
}

// assets are the files that pages load. Their names contain a hash of their content, so a browser
// may keep them for ever.
type assets struct {
	files map[string]asset  // by hashed name
	names map[string]string // from the name in the source to the hashed one
}

var mediaTypes = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

func readAssets() (assets, error) {
	a := assets{files: make(map[string]asset), names: make(map[string]string)}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return a, fmt.Errorf("read assets: %w", err)
	}
	for _, e := range entries {
		data, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return a, fmt.Errorf("read asset %s: %w", e.Name(), err)
		}
		sum := sha256.Sum256(data)
		ext := path.Ext(e.Name())
		hashed := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.names[e.Name()], a.files[hashed] = hashed, asset{mediaTypes[ext], data}
	}
	return a, nil
}

// sendAsset answers with the asset that the path names by its hashed name.
func (c *call) sendAsset() error {
	file, ok := c.console.assets.files[c.path["name"]]
	if !ok {
		return errNoPage
	}
	h := c.w.Header()
	h.Set("Content-Type", file.mediaType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	c.begun = true
	if _, err := c.w.Write(file.data); err != nil {
		c.console.log.Debug("an asset could not be sent", "error", err)
	}
	return nil
}

// Asset returns the path of an asset by its name in the source.
func (f *frame) Asset(name string) string {
	return f.call.console.options.Prefix + "/assets/" + f.call.console.assets.names[name]
}
