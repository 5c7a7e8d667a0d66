// Every command of thunk-disque against three nodes, whose addresses are the
// arguments. Prints {"calls","passed","failed":[text],"skipped":[text]}.
'use strict'

const assert = require('assert')
const disque = require('thunk-disque')

const addresses = process.argv.slice(2)
const result = { calls: 0, passed: 0, failed: [], skipped: [] }
const id = /^D-[0-9a-f]{8}-[0-9A-Za-z]{24}-[0-9a-f]{4}$/

async function main () {
  const client = disque.createClient(addresses, { usePromise: true, autoMeet: true })
  client.on('error', (err) => result.failed.push('error event: ' + err))
  // A warning is told of each error reply; the calls see those themselves.

  // call asks and looks at the answer; an error is one when no error is expected.
  async function call (name, args, look) {
    result.calls++
    try {
      let answer
      try {
        answer = await client[name](...args)
      } catch (err) {
        answer = err
      }
      if (answer instanceof Error && look.length !== 2) throw answer
      look(answer, null)
      result.passed++
      return answer
    } catch (err) {
      result.failed.push(`${name} ${args.join(' ')}: ${err.message}`)
    }
  }
  const is = (want) => (answer) => assert.deepStrictEqual(answer, want)
  const like = (re) => (answer) => assert(re.test(answer), `${answer} is not like ${re}`)
  const refused = (re) => (answer, _) => assert(answer instanceof Error && re.test(String(answer)), `${answer} is no error like ${re}`)

  const q = 'thunk-' + process.pid
  await call('ping', [], is('PONG'))
  await call('hello', [], (a) => {
    assert.strictEqual(a[0], 1)
    assert.strictEqual(a.length, 2 + addresses.length)
    assert(a.slice(2).some((n) => n[3] === '1'), 'no node leads')
  })
  const a = await call('addjob', [q, 'one', 0], like(id))
  const b = await call('ADDJOB', [[q, 'two', 0, 'REPLICATE', 1, 'RETRY', 0, 'TTL', 600]], like(id))
  await call('addjob', [q, 'three', 0, 'ASYNC', 'DELAY', 100], like(id))
  await call('addjob', [q, 'x', 0, 'RETRY', 0], refused(/^ERR/))
  await call('qlen', [q], is(2))
  await call('qpeek', [q, 10], is([[q, a, 'one'], [q, b, 'two']]))
  await call('show', [a], (s) => {
    assert.strictEqual(Object.keys(s).length, 15)
    assert.strictEqual(s.id, a)
    assert.strictEqual(s.state, 'queued')
    assert.strictEqual(s.body, 'one')
    assert.strictEqual(s['nodes-delivered'].length, addresses.length)
  })
  await call('show', ['D-0ca28763-cEPWFkFi4lF6unhxsfQCAto7-05a1'], is(null))
  await call('show', ['nonsense'], refused(/^BADID/))
  await call('dequeue', [a, b], is(2))
  await call('enqueue', [a], is(1))
  await call('nack', [b], is(1))
  await call('getjob', ['WITHCOUNTERS', 'FROM', q], is([[q, a, 'one', 'nacks', 0, 'additional-deliveries', 0]]))
  await call('working', [a], is(300))
  await call('nack', [a], is(1))
  await call('getjob', ['COUNT', 9, 'WITHCOUNTERS', 'FROM', q], (jobs) => {
    assert.deepStrictEqual(jobs[0], [q, a, 'one', 'nacks', 1, 'additional-deliveries', 0])
    assert.strictEqual(jobs[1][1], b)
  })
  await call('getjob', ['NOHANG', 'FROM', q], is(null))
  await call('ackjob', [a, a], is(1))
  await call('fastack', [b], is(1))
  await call('jscan', ['0', 'QUEUE', q], (s) => assert.strictEqual(s[1].length, 1))
  await call('qscan', ['BUSYLOOP'], (s) => assert(s[1].includes(q)))
  await call('qstat', [q], (s) => {
    assert.strictEqual(Object.keys(s).length, 10)
    assert.strictEqual(s.name, q)
    assert.strictEqual(s['jobs-in'], 3)
  })
  await call('pause', [q, 'in'], is('in'))
  await call('addjob', [q, 'x', 0], refused(/^PAUSED/))
  await call('pause', [q, 'none'], is('none'))
  const d = await call('addjob', [q, 'four', 0], like(id))
  await call('deljob', [d], is(1))
  await call('info', [], (i) => {
    assert.strictEqual(i.loading, '0')
    assert(i.disque_version)
  })
  await call('cluster', ['nodes'], (n) => assert.strictEqual(n.trim().split('\n').length, addresses.length))
  await call('cluster', ['info'], like(/cluster_state:ok/))
  await call('config', ['get', 'appendonly'], is(['appendonly', 'yes']))
  await call('config', ['resetstat'], is('OK'))
  await call('client', ['list'], like(/^id=/))
  await call('command', [], (c) => assert(c.length > 30))
  await call('time', [], (t) => assert(Math.abs(Number(t[0]) - Date.now() / 1000) < 60))
  await call('slowlog', ['len'], (n) => assert.strictEqual(typeof n, 'number'))
  await call('bgrewriteaof', [], like(/^Background/))
  await call('auth', ['x'], refused(/^ERR/))
  await call('latency', ['latest'], refused(/^ERR/))
  await call('loadjob', ['x'], refused(/^ERR/))
  await call('debug', ['sleep', '0'], refused(/^ERR/))
  result.skipped.push('shutdown: it would stop a node; redis-cli does it')

  // Pipelined: 300 at once, each its own id; taken by one that waits.
  const many = await Promise.all(Array.from({ length: 300 }, (_, i) => call('addjob', [q + '-many', 'job ' + i, 0], like(id))))
  assert.strictEqual(new Set(many).size, 300)
  const got = new Set()
  while (got.size < 300) {
    const jobs = await call('getjob', ['TIMEOUT', 5000, 'COUNT', 100, 'FROM', q + '-many'], (j) => assert(j && j.length))
    if (!jobs) break
    jobs.forEach((j) => got.add(j[1]))
    await call('ackjob', jobs.map((j) => j[1]), is(jobs.length))
  }
  // One that waits is served by another client: what stands behind a waiting
  // GETJOB on a connection waits as well.
  const other = disque.createClient(addresses, { usePromise: true })
  const waiting = call('getjob', ['TIMEOUT', 10000, 'FROM', q + '-wait'], (j) => assert.strictEqual(j[0][2], 'late'))
  setTimeout(() => other.addjob(q + '-wait', 'late', 0), 50)
  await waiting

  // The connections become watchers. The client gives even the first OK to the
  // event, not to the call.
  result.calls++
  const seen = new Promise((resolve) => client.on('monitor', (line) => { if (/qlen/i.test(line)) resolve(line) }))
  let oks = 0
  const watching = new Promise((resolve) => client.on('monitor', (line) => { if (line === 'OK' && ++oks === addresses.length) resolve() }))
  client.monitor()
  await watching
  await other.qlen(q + '-seen')
  if ((await seen).includes(q + '-seen')) result.passed++
  else result.failed.push('monitor')
  result.calls++
  if ((await other.quit()) === 'OK') result.passed++
  else result.failed.push('quit')
  other.clientEnd()
  client.clientEnd()
}

setTimeout(() => {
  result.failed.push('no end within a minute')
  console.log(JSON.stringify(result))
  process.exit(0)
}, 60000).unref()

main().catch((err) => result.failed.push(String(err.stack))).then(() => {
  console.log(JSON.stringify(result))
  process.exit(0)
})
