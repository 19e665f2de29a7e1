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
 * on this thread and cannot be interrupted: the time limit is the caller's, who ends the process. So is
 * the size of a proof. The caller chooses ids that a proof which writes to stdout cannot guess.
 */
const readline = require('node:readline');
const { Worker } = require('node:worker_threads');
const { Runtime } = require('./runtime.js');
const { Verifier } = require('./verify.js');

console.log = () => {}; // lean.js reports its progress here; stdout carries answers only

const send = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
const megabytes = () => Math.round(process.memoryUsage().rss / 1e6);

async function start(folder, header) {
  const runtime = await Runtime.start(folder);
  const verifier = new Verifier(runtime, header);
  runtime.closeFiles();
  runtime.saveSnapshot();
  return { runtime, verifier };
}

/** The verdict on a request, whatever the proof does to Lean. */
function judge(verifier, request) {
  try {
    return verifier.check(request);
  } catch (error) {
    return { why: 'crashed', messages: [String(error)] };
  }
}

/** End this process when its parent is gone: a proof that never ends would outlive it. */
function endWithParent() {
  const watch = (parent) =>
    setInterval(() => process.ppid === parent || process.kill(process.pid, 'SIGKILL'), 1000);
  new Worker(`(${watch})(${process.ppid})`, { eval: true }).unref();
}

async function main([folder]) {
  endWithParent();
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
