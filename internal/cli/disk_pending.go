package cli
import ("errors";"github.com/punctualmq/punctual")
func openDirectory(dir string) (punctual.Store, error) { return nil, errors.New("pending") }
