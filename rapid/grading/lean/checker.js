'use strict';
/**
 * Checks Lean proofs: one JSON request a line on stdin, one JSON answer a line on stdout.
 *
 *   node checker.js FOLDER IMAGE    FOLDER holds lean.js, lean.wasm and lib/ (see install.py);
 *                                   IMAGE is a file that is read, or made (see memory.js)
 *
 *   first  {"header"}                          ->  {"ready", "why", "source", "megabytes"}
 *   then   {"id", "name", "statement", "proof"} ->  {"id", "ok", "why", "messages", "megabytes"}
 *
 * Lean's memory is put back after every answer, so no proof sees what another one did. Lean runs
 * on this thread and cannot be interrupted: the time limit is the caller's, who ends the process.
 * The caller also limits the size of a proof, and chooses ids that cannot be guessed.
 */
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const { Worker } = require('node:worker_threads');
const { Snapshot } = require('./memory.js');
const { NoThreads, Runtime } = require('./runtime.js');
const { Verifier } = require('./verify.js');

console.log = () => {}; // lean.js reports its progress here; stdout carries answers only

const send = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
const megabytes = () => Math.round(process.memoryUsage().rss / 1e6);

/** Lean with `header` imported: from its image, or anew where there is none that can be read. */
async function start(folder, image, header) {
  if (fs.existsSync(image)) {
    try {
      const runtime = await Runtime.start(folder);
      const { snapshot, roots } = Snapshot.load(image, runtime);
      return { verifier: new Verifier(runtime, roots), snapshot, source: 'image' };
    } catch {
      // damaged: made again below
    }
  }
  return startWithoutImage(folder, image, header);
}

async function startWithoutImage(folder, image, header) {
  const runtime = await Runtime.start(folder);
  runtime.initialize(path.join(folder, 'lib'));
  const verifier = Verifier.import(runtime, header);
  runtime.closeFiles();
  const snapshot = Snapshot.take(runtime);
  try {
    snapshot.save(image, verifier.roots);
  } catch {
    // a cache that may only be read: the next process imports again
  }
  return { verifier, snapshot, source: 'import' };
}

/** The verdict on a request, whatever the proof does to Lean. */
function judge(verifier, request) {
  try {
    return verifier.check(request);
  } catch (error) {
    if (error instanceof NoThreads) return { why: 'forbidden', messages: [error.message] };
    return { why: 'crashed', messages: [String(error)] };
  }
}

/** End this process when its parent is gone: a proof that never ends would outlive it. */
function endWithParent() {
  const watch = (parent) =>
    setInterval(() => process.ppid === parent || process.kill(process.pid, 'SIGKILL'), 1000);
  new Worker(`(${watch})(${process.ppid})`, { eval: true }).unref();
}

async function main([folder, image]) {
  endWithParent();
  const lines = readline.createInterface({ input: process.stdin, terminal: false });
  let lean = null;
  for await (const line of lines) {
    const request = JSON.parse(line);
    if (lean === null) {
      lean = await start(folder, image, request.header);
      send({ ready: true, source: lean.source, megabytes: megabytes() });
      continue;
    }
    const verdict = judge(lean.verifier, request);
    send({ id: request.id, ok: verdict.why === 'passed', ...verdict, megabytes: megabytes() });
    lean.snapshot.restore();
  }
}

main(process.argv.slice(2)).catch((error) => {
  send({ ready: false, why: String(error) });
  process.exitCode = 1;
});
