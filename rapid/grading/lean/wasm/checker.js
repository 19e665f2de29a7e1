'use strict';
/**
 * Checks Lean proofs, in two processes that share nothing but bytes.
 *
 *   node checker.js ROLE FOLDER IMAGE SCRATCH
 *
 * ROLE is `author`, which elaborates a proof and writes down what it came to (author.js), or
 * `judge`, which never sees the proof's text and decides (judge.js). FOLDER holds lean.js,
 * lean.wasm and lib/ (install.py). IMAGE is read, or made by way of SCRATCH (memory.js).
 *
 * Requests and answers are JSON lines; a line with a field `bytes` is followed by as many bytes.
 *
 *   first   {header, renew}                 ->  {id, ready, why}; renew, the id, may be left out
 *   later   {renew, megabytes}              ->  {id, ready, answered}, with the memory put back; the
 *                                               process ends if it has taken more megabytes
 *   author  {id, name, statement, proof, checked}  ->  {id, why, messages, megabytes, bytes} export
 *   judge   {id, name, statement}                  ->  {id, why, messages, megabytes}
 *           {id, name, statement, bytes} export    ->  the same
 *
 * `why` is a reason of verdicts.py; an author says `elaborated` of a proof that it exports, a judge
 * `stated` of a statement that it was asked about alone, and `bad statement`.
 *
 * Lean runs on this thread and cannot be interrupted: the time limit is the caller's, who ends the
 * process. The caller also limits sizes, and chooses ids that cannot be guessed.
 */
const fs = require('node:fs');
const { Author } = require('./author.js');
const { Frontend } = require('./frontend.js');
const { Judge } = require('./judge.js');
const { Image } = require('./memory.js');
const { Closed, Runtime, readProgram } = require('./runtime.js');
const { Refusal } = require('./refusal.js');

const PROOFS = new Set(['elaborated', 'passed']);
const ROLES = { author: Author, judge: Judge };

console.log = () => {}; // lean.js reports its progress here; stdout carries answers only

/** Standard input: lines, and counted bytes behind them. */
class Input {
  pending = Buffer.alloc(0);

  /** Return the next line, or null at the end. */
  line() {
    for (;;) {
      const end = this.pending.indexOf(10);
      if (end >= 0) return this.take(end + 1).toString();
      if (!this.more()) return null;
    }
  }

  bytes(count) {
    while (this.pending.length < count) if (!this.more()) throw new Error('the input is cut off');
    return this.take(count);
  }

  take(count) {
    const bytes = this.pending.subarray(0, count);
    this.pending = this.pending.subarray(count);
    return bytes;
  }

  more() {
    const chunk = Buffer.allocUnsafe(1 << 16);
    const count = fs.readSync(0, chunk);
    this.pending = Buffer.concat([this.pending, chunk.subarray(0, count)]);
    return count > 0;
  }
}

function send(answer, payload = Buffer.alloc(0)) {
  const line = JSON.stringify({ ...answer, bytes: payload.length });
  const message = Buffer.concat([Buffer.from(line + '\n'), payload]);
  for (let sent = 0; sent < message.length; ) sent += fs.writeSync(1, message, sent);
}

/** Return a Lean with `header` imported: from the image, or anew where none can be read. */
async function start(folder, path, scratch, header) {
  const program = readProgram(folder);
  try {
    return await load(program, Image.read(path));
  } catch {
    // none, or a damaged one: made below
  }
  const runtime = await Runtime.start(program);
  runtime.initialize();
  const image = Image.of(runtime, Frontend.import(runtime, header));
  try {
    image.write(path, scratch);
  } catch {
    // a cache that may only be read: the next process imports again
  }
  return load(program, image);
}

/** Return a Lean in the state of `image`. */
async function load(program, image) {
  const runtime = await Runtime.start(program);
  image.load(runtime);
  runtime.close();
  return { runtime, frontend: new Frontend(runtime, image.head.roots), image };
}

/** Return `{why, messages, payload}`, and whether the work came to its end. */
function answer(worker, request, exportBytes) {
  try {
    return { ...worker.answer(request, exportBytes), isWhole: true };
  } catch (error) {
    // What an export that was refused has left behind is not looked into.
    if (error instanceof Refusal) return { ...error, isWhole: exportBytes === undefined };
    const why = error instanceof Closed ? 'forbidden' : 'crashed';
    return { why, messages: [String(error)], isWhole: false };
  }
}

async function main([role, folder, image, scratch]) {
  const input = new Input();
  const { header, renew } = JSON.parse(input.line());
  const lean = await start(folder, image, scratch, header);
  const worker = new ROLES[role](lean.frontend);
  send({ id: renew, ready: true });
  let count = 0; // of proofs that it elaborated, or passed
  for (let line; (line = input.line()) !== null; ) {
    const request = JSON.parse(line);
    if (request.renew !== undefined) {
      if (process.memoryUsage().rss > 1e6 * request.megabytes) return; // the borrower starts another
      lean.image.tidy(lean.runtime, false);
      send({ id: request.renew, ready: true, answered: count });
      continue;
    }
    const exportBytes = request.bytes === undefined ? undefined : input.bytes(request.bytes);
    const { why, messages, payload, isWhole } = answer(worker, request, exportBytes);
    count += PROOFS.has(why);
    const megabytes = Math.round(process.memoryUsage().rss / 1e6);
    send({ id: request.id, why, messages, megabytes }, payload);
    lean.image.tidy(lean.runtime, isWhole);
  }
}

main(process.argv.slice(2)).catch((error) => {
  send({ ready: false, why: String(error) });
  process.exitCode = 1;
});
