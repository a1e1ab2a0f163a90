package pgstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
	"github.com/punctualmq/punctual/storekit"
)

// maxProblems bounds CheckReport.Problems, because damage may concern every message. Further
// problems are left out.
const maxProblems = 100

// Check reads all messages and names those that no sound store has; see storekit.Checker.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (storekit.CheckReport, error) {
	var report storekit.CheckReport // also beside an error
	_, err := call(ctx, s, "check", "", nil, func() (_ struct{}, err error) {
		report, err = s.check(ctx, progress)
		return
	})
	return report, err
}

func (s *Store) check(ctx context.Context, progress func(read int64)) (report storekit.CheckReport, err error) {
	named := func(rows scanner) error { // problems, by topics
		var topic string
		var problems []string
		err := rows.Scan(&topic, &problems)
		for _, p := range problems {
			addProblem(&report, topic, p)
		}
		return err
	}
	err = s.db.readAll(ctx, func() *step {
		report = storekit.CheckReport{}
		return s.db.step().add("check", s.db.reading(), func(rows scanner) error {
			var topic string
			var live, dead int64
			var problems []string
			if err := rows.Scan(&topic, &live, &dead, &problems); err != nil {
				return err
			}
			report.Topics++
			report.Live += live
			report.Dead += dead
			for _, p := range problems {
				addProblem(&report, topic, p)
			}
			if progress != nil {
				progress(report.Live + report.Dead)
			}
			return nil
		}).add("check_finished", nil, named).add("check_keys", s.db.reading(), named).
			add("check_coded", nil, func(rows scanner) error { return checkCoded(rows, &report) })
	})
	if err == nil {
		err = s.db.settled(ctx)
	}
	return report, err
}

func addProblem(r *storekit.CheckReport, topic, problem string) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf("topic %s: %s", topic, problem))
	}
}

// checkCoded reads a row of check_coded.sql.
func checkCoded(rows scanner, r *storekit.CheckReport) error {
	var topic, id string
	var headers, attributes []byte
	var failures [][]byte
	if err := rows.Scan(&topic, &id, &headers, &failures, &attributes); err != nil {
		return err
	}
	_, err := decodeHeaders(headers)
	if err == nil {
		_, err = decodeFailures(failures)
	}
	if err == nil {
		err = setAttributes(new(punctual.Message), attributes)
	}
	if err != nil {
		addProblem(r, topic, fmt.Sprintf("%s is damaged: %v", id, err))
	}
	return nil
}
