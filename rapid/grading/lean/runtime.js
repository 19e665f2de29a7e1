'use strict';
/**
 * The WebAssembly Lean as a JavaScript object: starting it, and Lean's values in its memory.
 *
 * Layout of a Lean object (32 bits): reference count (4 bytes), size (2), number of fields (1),
 * tag (1), then the fields (4 bytes each). An odd "pointer" is a small number or a constructor
 * without fields. Reference counts are never brought down from here: what a proof leaves behind
 * goes when the memory is put back.
 */
const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const PAGE = 65536; // bytes
const MAX_PAGES = 32768; // as the module declares
const C_STACK = 64 << 20; // bytes; the module's own stack is too small for deep elaboration
const MANY = 1 << 20; // references added to what must outlive the callee that consumes one
const SYSROOT = '/sysroot'; // in Lean's own file system
const MODULES = SYSROOT + '/lib/lean';
const TAG = { string: 249, array: 246 };

/** A small number, or the constructor of that index without fields. */
const box = (number) => (number << 1) | 1;

/** What a Lean IO action failed with. */
class LeanError extends Error {}
/** Lean tried to start a thread: it would run on in the memory of the next proof. */
class NoThreads extends Error {}

const threads = {
  isMainThread: true,
  Worker: class {
    constructor() {
      throw new NoThreads('this Lean starts no threads');
    }
  },
};
const requireForLean = (name) => (name === 'worker_threads' ? threads : require(name));

/** Load lean.js and lean.wasm from `folder`; resolves to the emscripten module, with `exports`. */
function instantiate(folder) {
  const source = fs.readFileSync(path.join(folder, 'lean.js'), 'utf8');
  return new Promise((resolve) => {
    const module = {
      noInitialRun: true,
      print() {}, // what a proof prints is not ours
      printErr() {},
      wasmMemory: new WebAssembly.Memory({ initial: 256, maximum: MAX_PAGES, shared: true }),
      instantiateWasm(imports, done) {
        const code = new WebAssembly.Module(fs.readFileSync(path.join(folder, 'lean.wasm')));
        const instance = new WebAssembly.Instance(code, imports);
        module.exports = instance.exports;
        done(instance, code);
      },
      onRuntimeInitialized: () => setImmediate(resolve, module),
    };
    const parameters = ['Module', 'require', '__filename', '__dirname'];
    const load = vm.compileFunction(source, parameters, { filename: 'lean.js' });
    load(module, requireForLean, path.join(folder, 'lean.js'), folder);
  });
}

class Runtime {
  /** Start the module in `folder`. Then either `initialize` it or load an image of one that was. */
  static async start(folder) {
    return new Runtime(await instantiate(folder));
  }

  constructor(module) {
    this.module = module;
    this.x = module.exports;
    this.memory = module.wasmMemory;
    this.table = module.exports.__indirect_function_table;
    this.firstAddedFunction = this.table.length;
  }

  initialize(library) {
    const bottom = (this.x.malloc(C_STACK) + 15) & ~15;
    this.useStack({ bottom, top: bottom + C_STACK - 16 });
    const { FS, NODEFS } = this.module;
    FS.mkdirTree(MODULES);
    FS.mount(NODEFS, { root: library }, MODULES);
    this.x.lean_initialize();
    this.io(this.x.l_Lean_initSearchPath(this.makeString(SYSROOT), box(0)), 'search path');
    this.x.lean_enable_initializer_execution();
    this.x.lean_io_mark_end_initialization();
    this.x.lean_init_task_manager_using(1);
  }

  useStack(stack) {
    this.stack = stack;
    this.x.emscripten_stack_set_limits(stack.top, stack.bottom);
    this.x._emscripten_stack_restore(stack.top);
  }

  /** From here on Lean sees no file of this machine. */
  closeFiles() {
    this.module.FS.unmount(MODULES);
  }

  // Views are made anew at each use: growing the memory replaces its buffer.
  get bytes() {
    return new Uint8Array(this.memory.buffer);
  }
  get words() {
    return new Uint32Array(this.memory.buffer);
  }

  isScalar(object) {
    return (object & 1) === 1;
  }
  tag(object) {
    return this.bytes[object + 7];
  }
  field(object, index) {
    return this.words[(object >>> 2) + 2 + index];
  }

  /** Add references to `object`, so that calls that consume one leave it alive. Returns it. */
  keep(object) {
    if (this.isScalar(object)) return object;
    const counts = new Int32Array(this.memory.buffer);
    const at = object >>> 2;
    if (counts[at] > 0) counts[at] += MANY;
    else if (counts[at] < 0) counts[at] -= MANY; // shared between threads: counted downwards
    return object;
  }
  keptField(object, index) {
    return this.keep(this.field(object, index));
  }

  makeString(text) {
    const encoded = Buffer.from(text + '\0', 'utf8');
    const pointer = this.x.malloc(encoded.length);
    this.bytes.set(encoded, pointer);
    const object = this.x.lean_mk_string(pointer);
    this.x.free(pointer);
    return object;
  }
  readString(object) {
    const size = this.words[(object >>> 2) + 2] - 1;
    return Buffer.from(this.bytes.slice(object + 20, object + 20 + size)).toString('utf8');
  }

  makeObject(tag, fields) {
    const size = 8 + 4 * fields.length;
    const object = this.x.lean_alloc_object(size);
    const { bytes, words } = this;
    words[object >>> 2] = 1;
    bytes[object + 4] = size & 255;
    bytes[object + 5] = size >> 8;
    bytes[object + 6] = fields.length;
    bytes[object + 7] = tag;
    words.set(fields, (object >>> 2) + 2);
    return object;
  }
  makeEmptyArray() {
    const object = this.makeObject(TAG.array, [0, 0]); // size and capacity
    this.bytes.fill(0, object + 4, object + 7);
    return this.keep(object);
  }
  readArray(object) {
    const start = (object >>> 2) + 4;
    return Array.from(this.words.slice(start, start + this.field(object, 0)));
  }

  makeName(text) {
    return this.keep(this.x.l_String_toName(this.makeString(text)));
  }
  readName(name) {
    if (this.isScalar(name)) return '';
    const prefix = this.readName(this.field(name, 0));
    const last = this.field(name, 1);
    const text = this.tag(name) === 1 ? this.readString(last) : String(last >>> 1);
    return prefix ? `${prefix}.${text}` : text;
  }

  /** The value of an IO result. Throws LeanError with the message of a failed one. */
  io(result, what) {
    if (this.isScalar(result)) return result;
    if (this.tag(result) !== 1) return this.field(result, 0);
    const error = this.field(result, 0);
    const text = this.isScalar(error) ? 'failed' : this.firstString(error);
    throw new LeanError(`${what}: ${text}`);
  }
  firstString(object) {
    const field = this.field(object, 0);
    const isString = !this.isScalar(field) && this.tag(field) === TAG.string;
    return isString ? this.readString(field) : 'failed';
  }
}

module.exports = { Runtime, LeanError, NoThreads, PAGE, box };
