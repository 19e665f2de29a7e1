'use strict';
/**
 * Lean's memory as it is once the header is imported: put back after a use that may have spoilt it,
 * given to a second Lean, and kept in a file so that the next process need not import again.
 *
 * The memory is all the state there is, but for the function table, to which looking up a symbol
 * adds, and the stack's limits. Both go into the image. The stack below its pointer is dead and
 * left out: a third of all bytes. A file is the SHA-256 of the rest, which who starts this process
 * compares (launch.py), a line of JSON, and the bytes.
 */
const { createHash } = require('node:crypto');
const fs = require('node:fs');
const { PAGE } = require('./runtime.js');

const SPARE = 128 << 20; // bytes that uses may fill until memory is put back anyway

/** Return the two stretches of memory beside the dead stack: [start, end) in bytes. */
function liveStretches({ stack, pointer, size }) {
  return [
    [0, stack.bottom],
    [pointer, size],
  ];
}

class Image {
  /** Return what `runtime` holds now; `roots` are the addresses to find things by. */
  static of(runtime, roots) {
    const pointer = runtime.x.emscripten_stack_get_current();
    const [size, top] = [runtime.bytes.length, runtime.x.sbrk(0)];
    const layout = { stack: runtime.stack, pointer, size, top };
    const parts = liveStretches(layout).map(([start, end]) => runtime.bytes.slice(start, end));
    return new Image({ ...layout, functions: addedFunctions(runtime), roots }, parts);
  }

  static read(path) {
    const file = fs.readFileSync(path);
    const begin = file.indexOf(10) + 1;
    let at = file.indexOf(10, begin) + 1;
    const head = JSON.parse(file.subarray(begin, at));
    const parts = liveStretches(head).map(([start, end]) => file.subarray(at, (at += end - start)));
    if (at !== file.length) throw new Error('the image has another size');
    return new Image(head, parts);
  }

  constructor(head, parts) {
    this.head = head;
    this.parts = parts;
  }

  /** Write it, all or nothing: first to `scratch`, which nobody else writes. */
  write(path, scratch) {
    const parts = [Buffer.from(JSON.stringify(this.head) + '\n'), ...this.parts];
    const hash = createHash('sha256');
    for (const part of parts) hash.update(part);
    const file = fs.openSync(scratch, 'w');
    for (const part of [Buffer.from(hash.digest('hex') + '\n'), ...parts]) {
      fs.writeFileSync(file, part); // from where the file is at
    }
    fs.closeSync(file);
    fs.renameSync(scratch, path);
  }

  /** Bring `runtime`, just started, into this state. */
  load(runtime) {
    runtime.memory.grow((this.head.size - runtime.bytes.length) / PAGE);
    addFunctions(runtime, this.head.functions);
    this.restore(runtime);
  }

  /**
   * Put memory back after a use if a proof's code ran in it, if something broke off (not
   * `isWhole`), or if it fills up. To put it back takes longer than to elaborate a proof. Otherwise
   * nothing but Lean's own code has written to it, to which a proof is data.
   */
  tidy(runtime, isWhole) {
    const isHit = runtime.noticed.evaluated || !isWhole;
    if (isHit || runtime.x.sbrk(0) - this.head.top > SPARE) this.restore(runtime);
    Object.assign(runtime.noticed, { evaluated: 0, unchecked: [] });
  }

  /** Put every live byte back; memory grown since is cleared. */
  restore(runtime) {
    const { bytes } = runtime;
    liveStretches(this.head).forEach(([start], index) => bytes.set(this.parts[index], start));
    bytes.fill(0, this.head.size);
    runtime.useStack(this.head.stack, this.head.pointer);
    runtime.statements.clear();
  }
}

/** Return the names of the functions put into the table since the start, in order. */
function addedFunctions({ x, table, firstAddedFunction }) {
  const names = new Map();
  for (const name in x) if (typeof x[name] === 'function') names.set(x[name], name);
  const added = [];
  for (let slot = firstAddedFunction; slot < table.length; slot++) {
    added.push(names.get(table.get(slot)));
  }
  if (added.includes(undefined)) throw new Error('a function in the table is not exported');
  return added;
}

function addFunctions({ x, table, firstAddedFunction }, names) {
  table.grow(names.length);
  names.forEach((name, index) => table.set(firstAddedFunction + index, x[name]));
}

module.exports = { Image };
