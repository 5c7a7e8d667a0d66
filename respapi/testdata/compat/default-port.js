// Sends what goes to Disque's default port to the node under test instead: tests
// of other people have that port written into them.
'use strict'

const net = require('net')

const port = Number(process.env.RESP_PORT)
const connect = net.Socket.prototype.connect

net.Socket.prototype.connect = function (...args) {
  const first = Array.isArray(args[0]) ? args[0][0] : args[0]
  if (first && typeof first === 'object' && Number(first.port) === 7711) first.port = port
  return connect.apply(this, args)
}
