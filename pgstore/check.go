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
	err := s.read(ctx, func() *step {
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
				if len(report.Problems) < maxProblems {
					report.Problems = append(report.Problems, fmt.Sprintf("topic %s: %s", topic, p))
				}
			}
			if progress != nil {
				progress(report.Live + report.Dead)
			}
			return nil
		})
	})
	if err != nil {
		return report, fmt.Errorf("check: %w", err)
	}
	return report, nil
}
