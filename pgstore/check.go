package pgstore

import (
	"context"
	"fmt"

	"github.com/punctualmq/punctual"
)

// maxProblems is how many problems a CheckReport holds at most.
const maxProblems = 100

// Check reads all messages and names those that no sound store has; see punctual.Checker.
func (s *Store) Check(ctx context.Context, progress func(read int64)) (punctual.CheckReport, error) {
	if err := s.enter(ctx); err != nil {
		return punctual.CheckReport{}, err
	}
	defer s.calls.Done()
	var report punctual.CheckReport
	err := s.readAll(ctx, func() *step {
		report = punctual.CheckReport{}
		return s.step().add("check", s.reading(), func(rows scanner) error {
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
		}).add("check_stories", nil, func(rows scanner) error {
			var topic string
			var problems []string
			if err := rows.Scan(&topic, &problems); err != nil {
				return err
			}
			for _, p := range problems {
				addProblem(&report, topic, p)
			}
			return nil
		}).add("check_coded", nil, func(rows scanner) error { return checkCoded(rows, &report) })
	})
	if err != nil {
		return report, fmt.Errorf("check: %w", err)
	}
	return report, nil
}

func addProblem(r *punctual.CheckReport, topic, problem string) {
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf("topic %s: %s", topic, problem))
	}
}

// checkCoded reads a row of check_coded.sql.
func checkCoded(rows scanner, r *punctual.CheckReport) error {
	var topic, id string
	var headers []byte
	var failures [][]byte
	if err := rows.Scan(&topic, &id, &headers, &failures); err != nil {
		return err
	}
	_, err := decodeHeaders(headers)
	if err == nil {
		_, err = decodeFailures(failures)
	}
	if err != nil {
		addProblem(r, topic, fmt.Sprintf("%s is damaged: %v", id, err))
	}
	return nil
}
