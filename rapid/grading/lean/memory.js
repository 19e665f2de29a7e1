'use strict';
/**
 * Lean's memory as it is once the header is imported: put back after every proof, and kept in a
 * file so that the next process need not import again.
 *
 * The memory is all the state there is, but for the function table, to which looking up a symbol
 * adds, and the stack's limits. Both go into the image. The stack below its pointer is dead and
 * left out: a third of all bytes. An image is one line of JSON, then the bytes.
 */
const fs = require('node:fs');
const { PAGE } = require('./runtime.js');

/** The two stretches of memory beside the dead stack: [start, end) in bytes. */
function liveStretches({ stack, pointer, size }) {
  return [
    [0, stack.bottom],
    [pointer, size],
  ];
}

class Snapshot {
  /** What `runtime` holds now. */
  static take(runtime) {
    const pointer = runtime.x.emscripten_stack_get_current();
    const layout = { stack: runtime.stack, pointer, size: runtime.bytes.length };
    const parts = liveStretches(layout).map(([start, end]) => runtime.bytes.slice(start, end));
    return new Snapshot(runtime, layout, parts);
  }

  constructor(runtime, layout, parts) {
    this.runtime = runtime;
    this.layout = layout;
    this.parts = parts;
  }

  /** Put every live byte back; memory grown since is cleared. */
  restore() {
    const { bytes, x } = this.runtime;
    liveStretches(this.layout).forEach(([start], index) => bytes.set(this.parts[index], start));
    bytes.fill(0, this.layout.size);
    x._emscripten_stack_restore(this.layout.pointer);
  }

  /** Write an image, all or nothing; `roots` are the addresses to find things by. */
  save(path, roots) {
    const head = { ...this.layout, functions: addedFunctions(this.runtime), roots };
    const partial = `${path}.${process.pid}`;
    const file = fs.openSync(partial, 'w');
    fs.writeSync(file, JSON.stringify(head) + '\n');
    for (const part of this.parts) fs.writeFileSync(file, part); // from where the file is at
    fs.closeSync(file);
    fs.renameSync(partial, path);
  }

  /** Bring `runtime`, just started, into the state of an image. Returns `{snapshot, roots}`. */
  static load(path, runtime) {
    const file = fs.openSync(path);
    const { functions, roots, ...layout } = JSON.parse(readLine(file));
    const parts = liveStretches(layout).map(([start, end]) => readBytes(file, end - start));
    fs.closeSync(file);
    runtime.memory.grow((layout.size - runtime.bytes.length) / PAGE);
    addFunctions(runtime, functions);
    runtime.useStack(layout.stack);
    const snapshot = new Snapshot(runtime, layout, parts);
    snapshot.restore();
    return { snapshot, roots };
  }
}

/** The first line of the file, which is then read on from behind it. */
function readLine(file) {
  const buffer = Buffer.alloc(1 << 20);
  const length = buffer.subarray(0, fs.readSync(file, buffer, 0, buffer.length, 0)).indexOf(10);
  return readBytes(file, length + 1).toString();
}

function readBytes(file, size) {
  const bytes = Buffer.allocUnsafeSlow(size);
  for (let done = 0; done < size; ) {
    const count = fs.readSync(file, bytes, done, size - done, null);
    if (count === 0) throw new Error('the image is too short');
    done += count;
  }
  return bytes;
}

/** The names of the functions that were put into the table since the start, in order. */
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

module.exports = { Snapshot };
