package main

import "testing"

const (
	jobReady   = `{"id":"D-1","state":"ready","queue":"q","priority":4,"deliveries":0,"failures":0,"enqueued_at":"2029-12-31T23:58:30Z","body":"hello"}`
	jobDead    = `{"id":"D-2","state":"dead","queue":"q","priority":9,"group":"g1","deliveries":3,"failures":3,"nacks":2,"enqueued_at":"2029-12-31T22:00:00Z","dead_at":"2029-12-31T23:00:00Z","last_error":"boom\nbang","dead_reason":"max_failures","body_base64":"/wAB","headers":{"tenant":"t1"}}`
	jobLeased  = `{"id":"D-3","state":"leased","queue":"q","priority":4,"deliveries":1,"failures":0,"enqueued_at":"2029-12-31T23:59:59Z","lease_until":"2030-01-01T00:00:50Z","consumer":"ann","cancel":true,"body":""}`
	jobDelayed = `{"id":"D-4","state":"delayed","queue":"q","priority":0,"deliveries":0,"failures":0,"enqueued_at":"2030-01-01T00:00:00Z","deliver_at":"2030-01-01T12:00:00Z","body":"two\nlines"}`
)

// What the commands send that look at queues and jobs, and what they print.
func TestLookCommands(t *testing.T) {
	for _, c := range []commandCase{
		{
			name: "peek", args: []string{"peek", "q"},
			exchanges: []exchange{{"GET /v1/queues/q/jobs?limit=10&state=ready ", `200 {"jobs":[` + jobReady + `]}`}},
			out: "ID   STATE  PRIO    AGE  TAKEN  FAILED  NOTE  BODY\n" +
				"D-1  ready     4  1m30s      0       0  -     hello\n",
		},
		{
			name: "peek of all states", args: []string{"peek", "q", "--state", "all", "--order", "desc", "--limit", "4", "--consistency", "fast", "--max-stale", "1s"},
			exchanges: []exchange{{
				"GET /v1/queues/q/jobs?consistency=fast&limit=4&max_stale=1s&order=desc&state=delayed%2Cready%2Cleased%2Cheld%2Cdead ",
				`200 {"jobs":[` + jobReady + `,` + jobDead + `,` + jobLeased + `,` + jobDelayed + `],"next_cursor":"c"}`,
			}},
			out: "ID   STATE    PRIO    AGE  TAKEN  FAILED  NOTE                               BODY\n" +
				"D-1  ready       4  1m30s      0       0  -                                  hello\n" +
				"D-2  dead        9     2h      3       3  max_failures: \"boom\\nbang\"         (3 B of binary) ff0001\n" +
				"D-3  leased      4     1s      1       0  cancelled, ann, lease ends in 50s  (empty)\n" +
				"D-4  delayed     0     0s      0       0  ready in 12h                       \"two\\nlines\"\n",
			errs: "there are more; --limit 100",
		},
		{
			name: "peek in pages, as json", args: []string{"peek", "q", "--limit", "0", "-o", "json"},
			exchanges: []exchange{
				{"GET /v1/queues/q/jobs?limit=1000&state=ready ", `200 {"jobs":[{"id":"D-1","new":1}],"next_cursor":"c1"}`},
				{"GET /v1/queues/q/jobs?cursor=c1&limit=1000&state=ready ", `200 {"jobs":[],"next_cursor":"c2"}`},
				{"GET /v1/queues/q/jobs?cursor=c2&limit=1000&state=ready ", `200 {"jobs":[{"id":"D-2"}]}`},
			},
			out: `{"jobs":[{"id":"D-1","new":1},{"id":"D-2"}]}` + "\n",
		},
		{
			name: "peek raw", args: []string{"peek", "q", "--raw"},
			exchanges: []exchange{{"GET /v1/queues/q/jobs?limit=10&state=ready ", `200 {"jobs":[` + jobReady + `,` + jobDead + `]}`}},
			out:       "hello\n\xff\x00\x01\n",
		},
		{
			name: "peek into nothing", args: []string{"peek", "q", "-o", "json"},
			exchanges: []exchange{{"GET /v1/queues/q/jobs?limit=10&state=ready ", `200 {"jobs":[]}`}},
			out:       `{"jobs":[]}` + "\n",
		},
		{
			name: "job show", args: []string{"job", "show", "D-2.3.tag"},
			exchanges: []exchange{{"GET /v1/jobs/D-2 ", `200 ` + jobDead}},
			out: "id             D-2\n" +
				"queue          q\n" +
				"state          dead\n" +
				"priority       9\n" +
				"group          g1\n" +
				"enqueued       2029-12-31T22:00:00Z (2h ago)\n" +
				"taken          3 times\n" +
				"failed         3 times: 2 by nack, 1 leases were over\n" +
				"last error     \"boom\\nbang\"\n" +
				"dead           2029-12-31T23:00:00Z (1h ago)\n" +
				"dead because   max_failures\n" +
				"header tenant  t1\n" +
				"body           3 B\n" +
				"\n00000000  ff 00 01                                          |...|\n",
		},
		{
			name: "job show, leased", args: []string{"job", "show", "D-3"},
			exchanges: []exchange{{"GET /v1/jobs/D-3 ", `200 ` + jobLeased}},
			out: "id          D-3\nqueue       q\nstate       leased, asked to stop\npriority    4\nenqueued    2029-12-31T23:59:59Z (1s ago)\n" +
				"taken       1 times\nlease ends  2030-01-01T00:00:50Z (in 50s)\nconsumer    ann\nbody        0 B\n\n",
		},
		{
			name: "job show raw", args: []string{"job", "show", "D-2", "--raw"},
			exchanges: []exchange{{"GET /v1/jobs/D-2 ", `200 ` + jobDead}},
			out:       "\xff\x00\x01",
		},
		{
			name: "job show of one that is gone", args: []string{"job", "show", "D-2"},
			exchanges: []exchange{{"GET /v1/jobs/D-2 ", `410 {"code":"job_gone","title":"The job is gone","applied":"no"}`}},
			code:      exitNothing, errs: "raftq: The job is gone (job_gone)\nhint: it was acked",
		},
		{
			name: "job wait, done", args: []string{"job", "wait", "D-1", "--limit", "2m"},
			exchanges: []exchange{
				{"GET /v1/jobs/D-1/wait?for=done&timeout=50s ", "204 "},
				{"GET /v1/jobs/D-1/wait?for=done&timeout=50s ", `200 {"id":"D-1","state":"done"}`},
			},
			out: "done\n",
		},
		{
			name: "job wait, dead", args: []string{"job", "wait", "D-1", "-o", "json"},
			exchanges: []exchange{{"GET /v1/jobs/D-1/wait?for=done&timeout=50s ", `200 {"id":"D-1","state":"dead","dead_reason":"rejected","last_error":"boom"}`}},
			code:      exitRefused, out: `{"id":"D-1","state":"dead","dead_reason":"rejected","last_error":"boom"}` + "\n", errs: "D-1 is dead of rejected: boom",
		},
		{
			name: "job wait, expired", args: []string{"job", "wait", "D-1"},
			exchanges: []exchange{{"GET /v1/jobs/D-1/wait?for=done&timeout=50s ", `200 {"id":"D-1","state":"expired"}`}},
			code:      exitRefused, out: "expired\n", errs: "D-1 is expired",
		},
		{
			name: "job wait in vain", args: []string{"job", "wait", "D-1", "--limit", "1s"},
			exchanges: []exchange{{"GET /v1/jobs/D-1/wait?for=done&timeout=1s ", "204 "}},
			code:      exitUnavailable, errs: "D-1 is neither done nor dead yet",
		},
		{
			name: "queues", args: []string{"queues", "--prefix", "m", "--min-len", "1", "--max-len", "9", "--limit", "2"},
			exchanges: []exchange{{
				"GET /v1/queues?limit=2&max_len=9&min_len=1&prefix=m ",
				`200 {"queues":[{"queue":"mail","ready":3,"bytes":2048,"paused":{"in":true,"out":true,"until":"2030-01-01T00:10:00Z"},"config":{"max_failures":3}},` +
					`{"queue":"m\n","dead":1,"paused":{"in":false,"out":true}}],"next_cursor":"c"}`,
			}},
			out: "QUEUE  READY  LEASED  DELAYED  HELD  DEAD  BYTES  NOTE\n" +
				"mail       3       0        0     0     0  2 KiB  paused in and out for 10m\n" +
				"\"m\\n\"      0       0        0     0     1    0 B  paused out\n",
		},
		{
			name: "queue show", args: []string{"queue", "show", "mail"},
			exchanges: []exchange{{
				"GET /v1/queues/mail ",
				`200 {"queue":"mail","ready":3,"oldest_ready_age_ms":61000,"enqueued_total":9,"config":{"max_failures":3,"backoff":{"min":"10s","max":"10m"},"fair":true,"dead_letter":"mail.dead","ttl":null},"configured":true,"version":812}`,
			}},
			out: "queue         mail\nready         3, the oldest waits for 1m1s\nleased        0\ndelayed       0\nheld          0\ndead          0\nbytes         0 B\nwaiters       0\n" +
				"so far        9 put in, 0 handed out, 0 acked, 0 failures, 0 expired, 0 died\n" +
				"max-failures  3\nbackoff-min   10s\nbackoff-max   10m\nfair          true\ndead-letter   mail.dead\nversion       812\n",
		},
		{
			name: "consumers show", args: []string{"consumers", "show", "a b"},
			exchanges: []exchange{{"GET /v1/consumers/a%20b?limit=1000 ", `200 {"jobs":[` + jobLeased + `]}`}},
			out: "ID   STATE   PRIO  AGE  TAKEN  FAILED  NOTE                               BODY\n" +
				"D-3  leased     4   1s      1       0  cancelled, ann, lease ends in 50s  (empty)\n",
		},
		{name: "peek below nothing", args: []string{"peek", "q", "--limit", "-1"}, code: exitUsage, errs: "limit: -1 is below 0"},
		{name: "unknown sorting", args: []string{"stats", "--sort", "size"}, code: exitUsage, errs: `sort: "size" is not one of name, ready`},
		{name: "watch too often", args: []string{"stats", "--watch=1ms"}, code: exitUsage, errs: "watch: "},
	} {
		t.Run(c.name, c.check)
	}
}

// What the commands send that change queues and jobs, and what they print.
func TestChangeCommands(t *testing.T) {
	for _, c := range []commandCase{
		{
			name: "job requeue", args: []string{"job", "requeue", "D-1", "D-2"},
			exchanges: []exchange{
				{"POST /v1/jobs/D-1/requeue?timeout=10s ", `200 {"id":"D-1"}`},
				{"POST /v1/jobs/D-2/requeue?timeout=10s ", `409 {"code":"at_most_once","detail":"it was handed out","applied":"no"}`},
			},
			code: exitRefused, out: "D-1 is ready\n", errs: "1 of 2 failed\n  D-2: it was handed out (at_most_once)\nhint: ",
		},
		{
			name: "job hold, from a pipe", args: []string{"job", "hold", "-"}, stdin: "D-1 and more\n\nD-2\n",
			exchanges: []exchange{{"POST /v1/jobs/D-1/hold?timeout=10s ", `200 {}`}, {"POST /v1/jobs/D-2/hold?timeout=10s ", `200 {}`}},
			out:       "D-1 is held\nD-2 is held\n",
		},
		{
			name: "job cancel", args: []string{"job", "cancel", "D-1"},
			exchanges: []exchange{{"POST /v1/jobs/D-1/cancel?timeout=10s ", `200 {}`}},
			out:       "D-1 is cancelled\n",
		},
		{
			name: "job delete", args: []string{"job", "delete", "D-1", "-o", "json"},
			exchanges: []exchange{{"DELETE /v1/jobs/D-1?timeout=10s ", `200 {"id":"D-1"}`}},
			out:       `{"id":"D-1"}` + "\n",
		},
		{
			name: "queue configure", args: []string{"queue", "configure", "q", "--lease", "2m", "--max-failures", "3", "--backoff-max", "1m", "--backoff-min", "1s", "--max-bytes", "1MiB", "--fair"},
			exchanges: []exchange{{
				`PATCH /v1/queues/q?timeout=10s {"backoff":{"max":"1m","min":"1s"},"fair":true,"lease":"2m","max_bytes":1048576,"max_failures":3}`,
				`200 {"queue":"q","version":12}`,
			}},
			out: "q is configured, version 12\n",
		},
		{
			name: "queue configure, reset", args: []string{"queue", "configure", "q", "--reset"},
			exchanges: []exchange{{`PUT /v1/queues/q?timeout=10s {}`, `200 {"queue":"q","version":13}`}},
			out:       "q is configured, version 13\n",
		},
		{
			name: "queue configure, back to defaults", args: []string{"queue", "configure", "q", "--dead-letter", "", "--backoff-min", "", "--backoff-max", "", "-o", "json"},
			exchanges: []exchange{{`PATCH /v1/queues/q?timeout=10s {"backoff":null,"dead_letter":null}`, `200 {"queue":"q","version":14}`}},
			out:       `{"queue":"q","version":14}` + "\n",
		},
		{name: "queue configure half a backoff", args: []string{"queue", "configure", "q", "--backoff-min", "1s"}, code: exitUsage, errs: "go together"},
		{name: "queue configure nothing", args: []string{"queue", "configure", "q"}, code: exitUsage, errs: "no setting is given"},
		{name: "queue configure nonsense", args: []string{"queue", "configure", "q", "--max-len", "many"}, code: exitUsage, errs: `max-len: "many" is not a whole number`},
		{
			name: "queue delete", args: []string{"queue", "delete", "q", "--force"},
			exchanges: []exchange{{"DELETE /v1/queues/q?force=true&timeout=10s ", `200 {"queue":"q","deleted":3}`}},
			out:       "q is deleted, and 3 jobs with it\n",
		},
		{
			name: "queue delete, not empty", args: []string{"queue", "delete", "q"},
			exchanges: []exchange{{"DELETE /v1/queues/q?timeout=10s ", `409 {"code":"queue_not_empty","detail":"it holds 3 jobs","applied":"no"}`}},
			code:      exitRefused, errs: "raftq: it holds 3 jobs (queue_not_empty)\nhint: --force deletes it with its jobs\n",
		},
		{
			name: "pause", args: []string{"pause", "q"},
			exchanges: []exchange{{"GET /v1/queues/q ", `200 {"queue":"q"}`}, {`PUT /v1/queues/q/pause?timeout=10s {"in":true,"out":true}`, `200 {}`}},
			out:       "q is paused in and out\n",
		},
		{
			name: "pause for a time, in the cluster's time", args: []string{"pause", "q", "--out", "--for", "10m"},
			exchanges: []exchange{
				{"GET /v1/queues?limit=1 ", `200 {"queues":[]}`},
				{"GET /v1/queues/q ", `404 {"code":"queue_not_found","applied":"no","title":"t","detail":"d"}`},
				{`PUT /v1/queues/q/pause?timeout=10s {"in":false,"out":true,"until":"2030-01-01T00:10:00Z"}`, `200 {}`},
			},
			out: "q is paused out for 10m\n", errs: "there was no queue q; it is made",
		},
		{name: "pause twice", args: []string{"pause", "q", "--for", "1m", "--until", "2030-01-01T00:00:00Z"}, code: exitUsage, errs: "give one of them"},
		{
			name: "resume what is not there", args: []string{"resume", "q"}, code: exitNothing, errs: "queue_not_found",
			exchanges: []exchange{{"GET /v1/queues/q ", `404 {"code":"queue_not_found","applied":"no","title":"t","detail":"d"}`}},
		},
		{
			name: "resume", args: []string{"resume", "q"},
			exchanges: []exchange{{"GET /v1/queues/q ", `200 {"queue":"q"}`}, {`PUT /v1/queues/q/pause?timeout=10s {"in":false,"out":false}`, `200 {}`}},
			out:       "q is open\n",
		},
		{
			name: "purge", args: []string{"purge", "q"},
			exchanges: []exchange{{"DELETE /v1/queues/q/jobs?state=ready%2Cdelayed&timeout=55s ", `200 {"queue":"q","purged":7}`}},
			out:       "7 jobs are dropped\n",
		},
		{
			name: "purge of very many", args: []string{"purge", "q", "--timeout", "5s"},
			exchanges: []exchange{{"DELETE /v1/queues/q/jobs?state=ready%2Cdelayed&timeout=5s ", `200 {"queue":"q","purged":70000,"more":true}`}},
			code:      exitUnavailable, out: "70000 jobs are dropped\n", errs: "there are more: run it again",
		},
		{
			name: "redrive", args: []string{"redrive", "q", "--max", "5", "--reason", "rejected", "--to", "again"},
			exchanges: []exchange{{`POST /v1/queues/q/redrive?timeout=55s {"max":5,"reason":"rejected","to":"again"}`, `200 {"redriven":2}`}},
			out:       "2 jobs are ready again\n",
		},
		{
			name: "consumers release", args: []string{"consumers", "release", "ann"},
			exchanges: []exchange{{"DELETE /v1/consumers/ann?timeout=55s ", `200 {"released":4}`}},
			out:       "4 jobs are given back\n",
		},
	} {
		t.Run(c.name, c.check)
	}
}
