// Package packaging tests the files around it: unit and socket of systemd, Dockerfile and compose file, alerts of Prometheus and
// the board of Grafana. Each is read as its program reads it, and what they name of Punctual exists.
//
// It is a module of its own, so that the parser of Prometheus is required of nobody.
package packaging
