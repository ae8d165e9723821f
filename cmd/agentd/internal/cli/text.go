package cli

import (
	"errors"
)

// Join adds a further error. Unlike errors.Join it leaves a single one as it is, because that is shown best.
func Join(err, further error) error {
	switch {
	case further == nil:
		return err
	case err == nil:
		return further
	}
	return errors.Join(err, further)
}
