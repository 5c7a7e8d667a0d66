package bench

import "io"

func (rep *Report) WriteHTML(w io.Writer) error { return nil }
