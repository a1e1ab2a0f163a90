package importer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"path"
	"strings"
	"time"

	"github.com/punctualmq/punctual/internal/cron"
	"github.com/punctualmq/punctual/schedule"
	"github.com/punctualmq/punctual/storekit"
)

// CronJobs of Kubernetes, as its API server returns them. What its controller does with them is
// that of Kubernetes 1.21 and newer.

// kubernetesObject is an object, or a list of objects.
type kubernetesObject struct {
	APIVersion, Kind string
	Metadata         struct{ Name, Namespace string }
	Spec             json.RawMessage
	Items            []*kubernetesObject
}

// cronJobSpec has all fields of a CronJob's spec.
type cronJobSpec struct {
	Schedule, TimeZone, ConcurrencyPolicy              string
	Suspend                                            bool
	StartingDeadlineSeconds                            *int64
	JobTemplate                                        json.RawMessage
	SuccessfulJobsHistoryLimit, FailedJobsHistoryLimit *int64
}

// KubernetesSchedules reads the CronJobs of a list of objects of Kubernetes in JSON, in which null
// stands for nothing. It returns what ReadSchedules does.
func KubernetesSchedules(list []byte, o ScheduleOptions) ([]FoundSchedule, []cron.Finding, error) {
	r := newSchedules(&o)
	var objects []*kubernetesObject
	if err := json.Unmarshal(list, &objects); err != nil {
		return nil, nil, storekit.Invalidf("a document is no object of Kubernetes, as kubectl get -o yaml writes it: %v", err)
	}
	r.kubernetes(objects)
	if len(r.all) > 0 {
		r.say(cron.Noted, "all CronJobs", "how long finished ones are kept, their history limits, is a setting of the topic here: punctual topic set %s --finished-retention", o.Topic)
	}
	return r.all, r.findings, nil
}

func (r *schedules) kubernetes(objects []*kubernetesObject) {
	for _, object := range objects {
		switch {
		case object == nil:
		case strings.HasSuffix(object.Kind, "List"):
			r.kubernetes(object.Items)
		default:
			r.cronJob(object)
		}
	}
}

func (r *schedules) cronJob(object *kubernetesObject) {
	r.entry = len(r.findings)
	where := cmp.Or(path.Join(object.Metadata.Namespace, object.Metadata.Name), "an object without a name")
	if object.Metadata.Name == "" || object.Kind != "CronJob" || object.APIVersion != "batch/v1" && object.APIVersion != "batch/v1beta1" {
		r.leave(where, "its kind is %q of %q, and only a CronJob of batch/v1 that has a name is read", object.Kind, object.APIVersion)
		return
	}
	var spec cronJobSpec
	var job struct {
		Spec struct{ BackoffLimit, ActiveDeadlineSeconds *int64 }
	}
	d := json.NewDecoder(bytes.NewReader(object.Spec))
	d.DisallowUnknownFields()
	err := d.Decode(&spec)
	switch {
	case err == nil && spec.JobTemplate == nil:
		err = errors.New("it has no jobTemplate")
	case err == nil:
		err = json.Unmarshal(spec.JobTemplate, &job)
	}
	if err != nil {
		r.leave(where, "its spec cannot be read: %v", err)
		return
	}
	s := schedule.Schedule{
		Body: spec.JobTemplate, MaxAttempts: 7,
		Headers: map[string]string{"kubernetes-namespace": object.Metadata.Namespace, "kubernetes-cronjob": object.Metadata.Name},
	}
	s.Zone = cmp.Or(spec.TimeZone, r.opt.Zone)
	text := robfigZone(spec.Schedule, &s.Zone)
	if s.Zone == "" {
		r.leave(where, "say with --zone which zone's clock it means: without timeZone that is the clock of kube-controller-manager, mostly UTC")
		return
	}
	if strings.HasPrefix(text, "@every") {
		r.say(cron.Changed, where, "%s counts from 1970 here, and from the last run in Kubernetes", text)
	}
	if !r.times(where, &s, text, cron.Kubernetes) || !r.cronJobPolicies(where, &s, &spec) {
		return
	}
	if n := job.Spec.BackoffLimit; n != nil {
		s.MaxAttempts = int(*n) + 1
	}
	if n := job.Spec.ActiveDeadlineSeconds; n != nil {
		s.Timeout = time.Duration(*n) * time.Second
		if cmp.Or(r.opt.MaxAttempts, s.MaxAttempts) > 1 {
			r.say(cron.Changed, where, "its activeDeadlineSeconds are for all attempts together there, and the timeout of %v here is for each: one attempt (--max-attempts 1) makes both the same", s.Timeout)
		}
	}
	paused := ""
	if spec.Suspend {
		paused = "suspended in Kubernetes"
	}
	r.add(where, strings.Trim(object.Metadata.Namespace+"."+object.Metadata.Name, "."), paused, s)
}

// cronJobPolicies says what becomes of times that overlap or were missed. Kubernetes runs a job for
// the latest time that was missed, however many there were, unless its starting deadline is over.
func (r *schedules) cronJobPolicies(where string, s *schedule.Schedule, spec *cronJobSpec) bool {
	switch spec.ConcurrencyPolicy {
	case "", "Allow":
		s.Overlap = schedule.OverlapAllow
	case "Forbid":
		s.Overlap = schedule.OverlapSkip
		r.policy(r.opt.Overlap == nil, where, "Forbid makes up for a time that came while a job ran as soon as that has ended; here it is left out (--overlap skip)")
	case "Replace":
		s.Overlap = schedule.OverlapReplace
		r.policy(r.opt.Overlap == nil, where, "Replace ends a job that still runs; here whoever runs it finishes the attempt, and only a message that waits is cancelled (--overlap replace)")
	default:
		r.leave(where, "concurrencyPolicy %q is not known here", spec.ConcurrencyPolicy)
		return false
	}
	if spec.StartingDeadlineSeconds == nil {
		return true
	}
	deadline := time.Duration(min(max(*spec.StartingDeadlineSeconds, 1), 366*24*3600)) * time.Second
	next, err := s.Preview(r.opt.Now, 100)
	if err != nil {
		r.leave(where, "%v", err)
		return false
	}
	shortest, longest := time.Duration(1<<62), time.Duration(0)
	for i := range len(next.Next) - 1 {
		gap := next.Next[i+1].At.Sub(next.Next[i].At)
		shortest, longest = min(shortest, gap), max(longest, gap)
	}
	switch {
	case deadline >= longest: // so that the latest time is always within it
	case deadline < shortest:
		s.Missed, s.Grace = schedule.MissedNone, deadline
	default:
		r.policy(r.opt.Missed == nil, where, "its startingDeadlineSeconds leave out a time that is later than that, and here the latest is made up for however late it is (--missed latest)")
	}
	return true
}
