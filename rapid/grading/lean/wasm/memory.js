'use strict';
/**
 * An image: the memory of a Lean that has imported the header, which is the code before every
 * statement. It is used to put the memory back after a proof that may have changed it, and it is
 * written to a file so that later processes need not import the header.
 *
 * Lean's state is its memory, the function table (which grows when a symbol is looked up) and the
 * limits of the stack. An image has all three. It leaves out the unused part of the stack, a third
 * of all bytes. The file of an image has a line with the SHA-256 of all that follows, which
 * launch.py verifies before it starts this process; a line of JSON; and the bytes of the memory.
 */
const { createHash } = require('node:crypto');
const fs = require('node:fs');
const { PAGE } = require('./runtime.js');

const MAX_GROWTH = 128 << 20; // bytes that proofs may allocate before the memory is put back

/** Return the two parts of memory outside the unused stack, as [start, end) in bytes. */
function liveRanges({ stack, pointer, size }) {
  return [
    [0, stack.bottom],
    [pointer, size],
  ];
}

class Image {
  /** Return an image of `runtime`. `roots` are addresses of objects that a Frontend needs. */
  static of(runtime, roots) {
    const pointer = runtime.x.emscripten_stack_get_current();
    // `top` is the end of the heap; the limits of the stack are in `runtime.stack`.
    const [size, top] = [runtime.bytes.length, runtime.x.sbrk(0)];
    const layout = { stack: runtime.stack, pointer, size, top };
    const parts = liveRanges(layout).map(([start, end]) => runtime.bytes.slice(start, end));
    return new Image({ ...layout, functions: addedFunctions(runtime), roots }, parts);
  }

  /** Read an image from a file. */
  static read(path) {
    const file = fs.readFileSync(path);
    const begin = file.indexOf(10) + 1; // 10 is the line feed; this is the second line's beginning
    let offset = file.indexOf(10, begin) + 1;
    const head = JSON.parse(file.subarray(begin, offset));
    const parts = liveRanges(head).map(([start, end]) =>
      file.subarray(offset, (offset += end - start)),
    );
    if (offset !== file.length) throw new Error('the image has a wrong size');
    return new Image(head, parts);
  }

  constructor(head, parts) {
    this.head = head;
    this.parts = parts;
  }

  /** Write the image to `scratch`, a file of this process alone, and rename that to `path`. */
  write(path, scratch) {
    const parts = [Buffer.from(JSON.stringify(this.head) + '\n'), ...this.parts];
    const hash = createHash('sha256');
    for (const part of parts) hash.update(part);
    const file = fs.openSync(scratch, 'w');
    for (const part of [Buffer.from(hash.digest('hex') + '\n'), ...parts]) {
      fs.writeFileSync(file, part); // appends, since `file` is a descriptor
    }
    fs.closeSync(file);
    fs.renameSync(scratch, path);
  }

  /** Put `runtime`, which was just started, into the state of this image. */
  load(runtime) {
    runtime.memory.grow((this.head.size - runtime.bytes.length) / PAGE);
    addFunctions(runtime, this.head.functions);
    this.restore(runtime);
  }

  /**
   * Put the memory back after a request, but only if that is necessary: it takes longer than
   * elaborating a proof. It is necessary if code of a proof has run, if the request did not finish
   * (not `isFinished`), or if proofs have allocated MAX_GROWTH. Otherwise only Lean's own code has
   * written to the memory, and for that code a proof is data.
   */
  restoreIfChanged(runtime, isFinished) {
    const mayBeChanged = runtime.noticed.evaluated || !isFinished;
    if (mayBeChanged || runtime.x.sbrk(0) - this.head.top > MAX_GROWTH) this.restore(runtime);
    Object.assign(runtime.noticed, { evaluated: 0, unchecked: [] });
  }

  /** Put the memory back to the image's content, and clear memory that was added since. */
  restore(runtime) {
    const { bytes } = runtime;
    liveRanges(this.head).forEach(([start], index) => bytes.set(this.parts[index], start));
    bytes.fill(0, this.head.size);
    runtime.useStack(this.head.stack, this.head.pointer);
    runtime.statements.clear();
  }
}

/** Return the names of the functions that were added to the table since the start, in order. */
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

/** Add functions to the table by their names. */
function addFunctions({ x, table, firstAddedFunction }, names) {
  table.grow(names.length);
  names.forEach((name, index) => table.set(firstAddedFunction + index, x[name]));
}

module.exports = { Image };
