// Package packaging has tests of the files in its directories: unit, socket and configuration for
// systemd, Dockerfile and compose file, manifests of Kubernetes and the chart of Helm, alerts of
// Prometheus and the board of Grafana. The tests check that the keys of the configuration, the
// metrics and most variables of Punctual that these files name exist. They parse queries as
// Prometheus does, and have systemd-analyze verify the units where it is installed.
//
// It is a module of its own, so that those who import Punctual do not need the parser of
// Prometheus.
package packaging
