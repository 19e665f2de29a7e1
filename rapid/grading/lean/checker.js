'use strict';
/**
 * Checks Lean proofs: one JSON request a line on stdin, one JSON answer a line on stdout.
 *
 *   node checker.js FOLDER        FOLDER holds lean.js, lean.wasm and lib/ (see install.py)
 *
 *   first  {"header"}                          ->  {"ready", "why", "seconds", "megabytes"}
 *   then   {"id", "name", "statement", "proof"} ->  {"id", "ok", "why", "messages", "megabytes"}
 *
 * Lean's memory is put back after every answer, so no proof sees what another one did. Lean runs
 * on this thread and cannot be interrupted: the time limit is the caller's, who ends the process.
 */
const readline = require('node:readline');
const { Runtime } = require('./runtime.js');
const { Verifier } = require('./verify.js');

const MAX_PROOF = 8192; // bytes
const stdout = process.stdout;
console.log = () => {}; // lean.js reports its progress here; stdout carries answers only

const send = (answer) => stdout.write(JSON.stringify(answer) + '\n');
const megabytes = () => Math.round(process.memoryUsage().rss / 1e6);

async function start(folder, header) {
  const runtime = await Runtime.start(folder);
  const verifier = new Verifier(runtime, header);
  runtime.closeFiles();
  runtime.saveSnapshot();
  return { runtime, verifier };
}

/** The verdict on a request, whatever the proof is. */
function judge(verifier, request) {
  if (request.proof.includes('\0')) return { why: 'forbidden', messages: ['NUL'] };
  if (Buffer.byteLength(request.proof) > MAX_PROOF) {
    return { why: 'forbidden', messages: [`longer than ${MAX_PROOF} bytes`] };
  }
  const proof = request.proof.replace(/\r\n?/g, '\n');
  try {
    return verifier.check({ ...request, proof });
  } catch (error) {
    return { why: 'crashed', messages: [String(error)] };
  }
}

async function main([folder]) {
  const lines = readline.createInterface({ input: process.stdin, terminal: false });
  let lean = null;
  for await (const line of lines) {
    const request = JSON.parse(line);
    if (lean === null) {
      lean = await start(folder, request.header);
      send({ ready: true, seconds: performance.now() / 1000, megabytes: megabytes() });
      continue;
    }
    const verdict = judge(lean.verifier, request);
    send({ id: request.id, ok: verdict.why === 'passed', ...verdict, megabytes: megabytes() });
    lean.runtime.restoreSnapshot();
  }
}

main(process.argv.slice(2)).catch((error) => {
  send({ ready: false, why: String(error) });
  process.exitCode = 1;
});
