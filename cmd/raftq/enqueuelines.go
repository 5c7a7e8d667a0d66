package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"raftq/client"
	"raftq/fsm"
)

// progressEvery is how often progress is shown.
const progressEvery = 200 * time.Millisecond

// linesRun is one enqueue --lines.
type linesRun struct {
	*session
	queue   string
	options map[string]any // of each job, as JSON has them
	key     string         // of the whole run, or ""
	quiet   bool

	begun    time.Time
	shown    time.Time // when progress was shown last
	terminal terminal
	done     int64 // jobs put in
	again    int64 // of these, duplicates by their dedup id
	failed   itemsError
}

// enqueueLines puts each line of an input in as a job, in order.
func enqueueLines(cmd *cobra.Command, queue string, in io.Reader, options url.Values, quiet bool) error {
	var retry []client.Option
	if !cmd.Flags().Changed("retry-for") {
		retry = append(retry, client.WithRetryFor(time.Minute)) // half of an input is worse than a pause
	}
	s, err := newSession(cmd, retry...)
	if err != nil {
		return err
	}
	defer s.Close()
	r := &linesRun{session: s, queue: queue, quiet: quiet, begun: time.Now(), terminal: terminalOf(cmd.ErrOrStderr())}
	if r.options, err = optionMembers(options); err != nil {
		return err
	}
	if f := cmd.Flags().Lookup("idempotency-key"); f.Changed {
		r.key = f.Value.String()
	}
	return r.run(newLineReader(in, fsm.BodyMax, r.key != ""))
}

func (r *linesRun) run(in *lineReader) error {
	defer r.terminal.statusDone()
	var last int64 // the last line that was dealt with
	for n := 1; ; n++ {
		lines, err := in.batch()
		if len(lines) == 0 {
			r.terminal.statusDone()
			if !errors.Is(err, io.EOF) {
				return r.stopped(last, fmt.Errorf("read the lines: %w", err))
			}
			return r.finish()
		}
		if err := r.send(n, lines); err != nil {
			r.terminal.statusDone()
			return r.stopped(last, err)
		}
		last = lines[len(lines)-1].number
		if time.Since(r.shown) > progressEvery {
			r.shown = time.Now()
			r.terminal.status("%d jobs, %.0f a second", r.done, float64(r.done)/time.Since(r.begun).Seconds())
		}
	}
}

// send puts a batch in. Jobs that are refused one by one are noted, and the next
// batches go on.
func (r *linesRun) send(n int, lines []inputLine) error {
	req, err := r.write(http.MethodPost, queuePath(r.queue, "/jobs"), nil)
	if err != nil {
		return err
	}
	if r.key != "" {
		req.Key = r.key + "." + strconv.Itoa(n)
	}
	jobs := make([]map[string]any, len(lines))
	for i, line := range lines {
		jobs[i] = map[string]any{"body_base64": line.text}
		for name, value := range r.options {
			jobs[i][name] = value
		}
	}
	var got struct {
		Results []itemResult `json:"results"`
	}
	if _, err := r.fetch(withJSON(req, jobs), &got); err != nil {
		return err
	}
	if len(got.Results) != len(lines) {
		return fmt.Errorf("%d results came for %d jobs", len(got.Results), len(lines))
	}
	return r.print(lines, got.Results)
}

// print prints what became of a batch: an id for each job, or with -o json the
// API's result.
func (r *linesRun) print(lines []inputLine, results []itemResult) error {
	var b strings.Builder
	for i := range results {
		res := &results[i]
		switch {
		case res.Status >= 300:
			r.failed.add(fmt.Sprintf("line %d", lines[i].number), res)
		case res.Duplicate:
			r.again++
			fallthrough
		default:
			r.done++
		}
		switch {
		case r.json:
			text, err := json.Marshal(struct {
				Line int64 `json:"line"`
				*itemResult
			}{lines[i].number, res})
			if err != nil {
				return err
			}
			b.Write(append(text, '\n'))
		case res.Status < 300 && !r.quiet:
			b.WriteString(res.ID + "\n")
		}
	}
	if b.Len() > 0 {
		r.terminal.statusDone() // both may be the same screen
	}
	_, err := io.WriteString(r.out(), b.String())
	return err
}

// finish says what was done, beside the output.
func (r *linesRun) finish() error {
	text := fmt.Sprintf("%s in %s", jobsAre(int(r.done)), printable([]byte(r.queue)))
	if r.again > 0 {
		text += fmt.Sprintf(", %d of them were before", r.again)
	}
	fmt.Fprintf(r.cmd.ErrOrStderr(), "raftq: %s, after %s\n", text, formatAge(time.Since(r.begun)))
	return r.failed.orNil(int(r.done) + len(r.failed.lines))
}

// stopped is the error of a run that cannot go on, and says how to.
func (r *linesRun) stopped(last int64, err error) error {
	how := fmt.Sprintf("tail -n +%d of the input", last+1)
	if r.key != "" {
		how = "the same command"
	}
	if last == 0 {
		how = "the same command"
	}
	if r.key == "" && exitCode(err) == exitUnknown {
		how += ", but the next lines may have been put in: see the queue"
	}
	return &exitError{exitCode(err), fmt.Errorf("stopped after line %d, %d jobs put in (go on with %s): %w", last, r.done, how, err)}
}

// optionMembers turns the options of a query into members of a JSON object.
func optionMembers(options url.Values) (map[string]any, error) {
	members, headers := map[string]any{}, map[string]string{}
	for name, values := range options {
		value := values[0]
		if h, ok := strings.CutPrefix(name, "header."); ok {
			headers[h] = value
			continue
		}
		switch name {
		case "priority", "max_failures", "max_len", "replicate":
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, &exitError{exitUsage, fmt.Errorf("%s: %q is not a whole number", strings.ReplaceAll(name, "_", "-"), value)}
			}
			members[name] = n
		case "at_most_once":
			members[name] = value == "true"
		default:
			members[name] = value
		}
	}
	if len(headers) > 0 {
		members["headers"] = headers
	}
	return members, nil
}
