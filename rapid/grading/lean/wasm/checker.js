'use strict';
/**
 * Checks Lean proofs: the program of the two processes, author and judge.
 *
 *   node checker.js ROLE FOLDER IMAGE SCRATCH
 *
 * ROLE is `author`, which elaborates a proof and exports the result as data (author.js), or
 * `judge`, which never sees the proof's text and decides about the export (judge.js). The two share
 * no memory. FOLDER has lean.js, lean.wasm and lib/ (install.py). IMAGE is the file with Lean's
 * memory after the header, the code before every statement: it is read, or else written, first as
 * SCRATCH (memory.js).
 *
 * Requests and answers are lines of JSON on standard input and output. A line with a field `bytes`
 * is followed by that many bytes, the export (export.js).
 *
 *   first   {header, renew}                 ->  {id, ready}; `renew`, the id, may be left out. If
 *                                               Lean does not start, {ready, why}, with its error
 *   later   {renew, megabytes}              ->  {id, ready, answered}; the memory was put back, or
 *                                               the process ends if it uses more megabytes
 *   author  {id, name, statement, proof, checked}  ->  {id, why, messages, megabytes, bytes} export
 *   judge   {id, name, statement}                  ->  {id, why, messages, megabytes}
 *           {id, name, statement, bytes} export    ->  the same
 *
 * Otherwise `why` is a reason of verdicts.py or one of these: `elaborated` (an author has exported
 * the proof), `stated` (a judge accepts the statement of a request without an export), `bad
 * statement` (it does not).
 *
 * Lean runs on this thread and cannot be interrupted. So the caller enforces the time limit, by
 * killing the process. The caller also limits sizes, and chooses ids that a proof cannot guess.
 */
const fs = require('node:fs');
const { Author } = require('./author.js');
const { Frontend } = require('./frontend.js');
const { Judge } = require('./judge.js');
const { Image } = require('./memory.js');
const { ForbiddenCall, Runtime, readProgram } = require('./runtime.js');
const { Refusal } = require('./refusal.js');

const PROOFS = new Set(['elaborated', 'passed']); // answers that count as proofs in `answered`
const ROLES = { author: Author, judge: Judge };

console.log = () => {}; // lean.js reports its progress here; stdout carries answers only

/** Standard input: lines, some of which are followed by a known number of bytes. */
class Input {
  pending = Buffer.alloc(0);

  /** Return the next line, or null at the end. */
  readLine() {
    for (;;) {
      const end = this.pending.indexOf(10);
      if (end >= 0) return this.take(end + 1).toString();
      if (!this.readMore()) return null;
    }
  }

  /** Return the next `count` bytes. */
  readBytes(count) {
    while (this.pending.length < count) {
      if (!this.readMore()) throw new Error('the input is cut off');
    }
    return this.take(count);
  }

  /** Remove the first `count` bytes from `pending`, and return them. */
  take(count) {
    const bytes = this.pending.subarray(0, count);
    this.pending = this.pending.subarray(count);
    return bytes;
  }

  /** Read more bytes. Return false at the end of the input. */
  readMore() {
    const chunk = Buffer.allocUnsafe(1 << 16);
    const count = fs.readSync(0, chunk);
    this.pending = Buffer.concat([this.pending, chunk.subarray(0, count)]);
    return count > 0;
  }
}

/** Write an answer, and the export that follows it. */
function send(answer, payload = Buffer.alloc(0)) {
  const line = JSON.stringify({ ...answer, bytes: payload.length });
  const message = Buffer.concat([Buffer.from(line + '\n'), payload]);
  for (let sent = 0; sent < message.length; ) sent += fs.writeSync(1, message, sent);
}

/** Return a Lean that has imported `header`: from the image at `path`, or by importing it. */
async function startLean(folder, path, scratch, header) {
  const program = readProgram(folder);
  try {
    return await loadImage(program, Image.read(path));
  } catch {
    // There is no image, or it is damaged: make one.
  }
  const runtime = await Runtime.start(program);
  runtime.initialize();
  const image = Image.of(runtime, Frontend.import(runtime, header));
  try {
    image.write(path, scratch);
  } catch {
    // The cache is read-only: the next process imports the header again.
  }
  return loadImage(program, image);
}

/** Return a Lean in the state of `image`. */
async function loadImage(program, image) {
  const runtime = await Runtime.start(program);
  image.load(runtime);
  runtime.close();
  return { runtime, frontend: new Frontend(runtime, image.head.roots), image };
}

/** Return the fields of the answer, and `isFinished`: the work ended, and left memory in order. */
function answerRequest(worker, request, exportBytes) {
  try {
    return { ...worker.answer(request, exportBytes), isFinished: true };
  } catch (error) {
    // After a refused export the judge's memory is always put back.
    if (error instanceof Refusal) return { ...error, isFinished: exportBytes === undefined };
    const why = error instanceof ForbiddenCall ? 'forbidden' : 'crashed';
    return { why, messages: [String(error)], isFinished: false };
  }
}

async function main([role, folder, image, scratch]) {
  const input = new Input();
  const { header, renew } = JSON.parse(input.readLine());
  const lean = await startLean(folder, image, scratch, header);
  const worker = new ROLES[role](lean.frontend);
  send({ id: renew, ready: true });
  let count = 0; // proofs that were elaborated or passed
  for (let line; (line = input.readLine()) !== null; ) {
    const request = JSON.parse(line);
    if (request.renew !== undefined) {
      // If the process ends here, the borrower starts another.
      if (process.memoryUsage().rss > 1e6 * request.megabytes) return;
      lean.image.restoreIfChanged(lean.runtime, false);
      send({ id: request.renew, ready: true, answered: count });
      continue;
    }
    const exportBytes = request.bytes === undefined ? undefined : input.readBytes(request.bytes);
    const { why, messages, payload, isFinished } = answerRequest(worker, request, exportBytes);
    count += PROOFS.has(why);
    const megabytes = Math.round(process.memoryUsage().rss / 1e6);
    send({ id: request.id, why, messages, megabytes }, payload);
    lean.image.restoreIfChanged(lean.runtime, isFinished);
  }
}

main(process.argv.slice(2)).catch((error) => {
  send({ ready: false, why: String(error) });
  process.exitCode = 1;
});
