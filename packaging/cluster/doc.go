// Package cluster has no code but its tests. The tests read the chart, the manifests and the
// Compose file with the code of the programs that users run. Helm lints and renders the chart. The
// types of Kubernetes and KEDA decode each object and refuse a field that they do not know. Compose
// checks its file against its schema. "make cluster" runs the tests. They are a module of their own
// beside package packaging, because Helm and KEDA take minutes to compile.
package cluster
