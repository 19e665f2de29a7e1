'use strict';
/**
 * The WebAssembly Lean as a JavaScript object: starts it, and reads and makes values in its memory.
 *
 * A Lean value is the address of an object, or an odd number, which stands for a small number or a
 * constructor without fields. Layout of an object (32 bits): reference count (4 bytes), size (2),
 * number of fields (1), tag (1), then the fields (4 bytes each). This code never decreases
 * reference counts, so its objects are not freed. They are gone when the memory is put back
 * (memory.js).
 */
const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');
const { InvokeWrappers } = require('./invoke.js');

const PAGE = 65536; // bytes
const MAX_PAGES = 24576; // 1.6 GB; Lean with the header imported uses 0.2 GB
const C_STACK = 64 << 20; // bytes; the module's own stack is too small for deep elaboration
const MANY_REFERENCES = 1 << 20; // added by `keep`: more than Lean's functions ever remove
const SYSROOT = '/sysroot'; // in the file system that emscripten makes for Lean
const MODULES = SYSROOT + '/lib/lean';
const TAG = { string: 249, array: 246 }; // of Lean objects
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Return the Lean value of a small number, or of the constructor without fields of this index. */
const box = (number) => (number << 1) | 1;

/** Thrown when an IO action of Lean fails. */
class LeanError extends Error {}
/** Thrown when Lean tries something forbidden: a file, a thread, the end of the process. */
class ForbiddenCall extends Error {}

// Lean must not start threads: in place of worker_threads it gets this object.
const threads = { isMainThread: true };
const requireForLean = (name) => (name === 'worker_threads' ? threads : require(name));

// Imports that Lean may call after the header is imported. All others could affect something
// outside of its memory.
const ALLOWED_IMPORTS = new RegExp(
  '^(?:invoke_\\w+|__cxa_\\w+|llvm_eh_typeid_for|__resumeException|_emscripten_throw_longjmp' +
    '|_dlsym(?:_catchup)?_js|emscripten_(?:get_now|date_now|resize_heap|get_heap_max' +
    '|num_logical_cores|check_blocking_allowed)|clock_(?:time|res)_get|random_get|fd_write)$',
);

// Two imports that Lean does not need otherwise. The patches in notices.py make Lean call them when
// it does something that this code must know of.
const NOTICES = {
  _emscripten_runtime_keepalive_clear: 'evaluated', // the interpreter is entered: a proof's code
  _emscripten_log_formatted: 'unchecked', // a declaration is added without the kernel
};

// Imports by which Lean ends the process: when memory runs out, or because of a bug.
const EXITS = new Set(['exit', 'proc_exit', '_abort_js', '__assert_fail']);

/** Wrap the functions in `imports`: once `isClosed()`, all but those in ALLOWED_IMPORTS throw. */
function makeClosable(imports, isClosed) {
  for (const [name, original] of Object.entries(imports)) {
    if (typeof original !== 'function' || ALLOWED_IMPORTS.test(name)) continue;
    const closable = (...values) => {
      if (isClosed() && EXITS.has(name)) throw new Error('Lean ended itself');
      if (isClosed()) throw new ForbiddenCall(`Lean may not call ${name}`);
      return original(...values);
    };
    // With the properties of `original`: lean.js stores the signature there.
    imports[name] = Object.assign(closable, original);
  }
}

/** Read the program in `folder`, from which any number of runtimes can be started. */
function readProgram(folder) {
  return {
    source: fs.readFileSync(path.join(folder, 'lean.js'), 'utf8'),
    code: new WebAssembly.Module(fs.readFileSync(path.join(folder, 'lean.wasm'))),
    library: path.join(folder, 'lib'),
    folder,
  };
}

/** Start an instance of Lean. Resolves to its emscripten module, with Lean's `exports`. */
function instantiate({ source, code, folder }) {
  return new Promise((resolve) => {
    const module = {
      noInitialRun: true,
      isClosed: false,
      print() {}, // output of proofs is dropped
      printErr() {},
      stdin: () => null, // a proof must not read requests
      wasmMemory: new WebAssembly.Memory({ initial: 256, maximum: MAX_PAGES, shared: true }),
      instantiateWasm(imports, done) {
        makeClosable(imports.env, () => module.isClosed); // WASI's imports are the same object
        for (const [name, notice] of Object.entries(NOTICES)) {
          imports.env[name] = (...values) => void module.notice[notice](...values);
        }
        const invokes = new InvokeWrappers(imports.env);
        const instance = new WebAssembly.Instance(code, imports);
        module.exports = instance.exports;
        invokes.connect(instance.exports);
        done(instance, code);
      },
      onRuntimeInitialized: () => setImmediate(resolve, module),
    };
    const parameters = ['Module', 'require', '__filename', '__dirname'];
    const load = vm.compileFunction(source, parameters, { filename: 'lean.js' });
    load(module, requireForLean, path.join(folder, 'lean.js'), folder);
  });
}

/**
 * A running Lean. `x` are its exports, `memory` its memory, `table` its function table. A method
 * with "make" in its name returns a new Lean value, one with "read" a JavaScript value.
 */
class Runtime {
  /** Start `program`. After that, call `initialize` or load an image of an initialized runtime. */
  static async start(program) {
    return new Runtime(await instantiate(program), program.library);
  }

  constructor(module, library) {
    this.module = module;
    this.library = library;
    // Notices in the present request: how often the interpreter was entered, and [environment,
    // declaration] of each declaration that was added without the kernel.
    this.noticed = { evaluated: 0, unchecked: [] };
    module.notice = {
      evaluated: () => (this.noticed.evaluated += 1),
      unchecked: (...objects) =>
        this.noticed.unchecked.push(objects.map((object) => this.share(object))),
    };
    this.statements = new Map(); // elaborated statements (frontend.js), until memory is put back
    this.x = module.exports;
    this.memory = module.wasmMemory;
    this.table = module.exports.__indirect_function_table;
    this.firstAddedFunction = this.table.length;
  }

  /** Initialize Lean: its stack, its file system, its modules. */
  initialize() {
    const bottom = (this.x.malloc(C_STACK) + 15) & ~15;
    const top = bottom + C_STACK - 16;
    this.useStack({ bottom, top }, top);
    const { FS, NODEFS } = this.module;
    FS.mkdirTree(MODULES);
    FS.mount(NODEFS, { root: this.library }, MODULES);
    this.x.lean_initialize();
    this.unwrapIO(this.x.l_Lean_initSearchPath(this.makeString(SYSROOT), box(0)), 'search path');
    this.x.lean_enable_initializer_execution();
    this.x.lean_io_mark_end_initialization();
    this.x.lean_init_task_manager_using(1);
  }

  /** Set the limits of the stack and the stack pointer. */
  useStack(stack, pointer) {
    this.stack = stack;
    this.x.emscripten_stack_set_limits(stack.top, stack.bottom);
    this.x._emscripten_stack_restore(pointer);
  }

  /** From now on Lean can only compute: no file, no thread, no timer, no exit. */
  close() {
    this.module.isClosed = true;
  }

  /** Typed arrays on the memory. When it has grown, they are made again on its new buffer. */
  get views() {
    const { buffer } = this.memory;
    if (this.current?.buffer !== buffer) {
      const [bytes, words] = [new Uint8Array(buffer), new Uint32Array(buffer)];
      this.current = { buffer, bytes, words, counts: new Int32Array(buffer) };
    }
    return this.current;
  }
  get bytes() {
    return this.views.bytes;
  }
  get words() {
    return this.views.words;
  }

  /** Return whether a value is a small number or a constructor without fields. */
  isScalar(object) {
    return (object & 1) === 1;
  }
  /** Return the tag of an object: its constructor's index, or a value of TAG. */
  tag(object) {
    return this.bytes[object + 7];
  }
  /** Return the index of the constructor that made a value. */
  constructorOf(object) {
    return this.isScalar(object) ? object >>> 1 : this.tag(object);
  }
  /** Return a byte after the `fields` pointers of an object, where its scalar fields are. */
  byte(object, fields, index) {
    return this.bytes[object + 8 + 4 * fields + index];
  }
  /** Return a field of an object, a Lean value. */
  field(object, index) {
    return this.words[(object >>> 2) + 2 + index];
  }

  setField(object, index, value) {
    this.words[(object >>> 2) + 2 + index] = value;
  }

  /** Add references to `object`, which functions of Lean will consume. Return `object`. */
  share(object, count = 1) {
    if (this.isScalar(object)) return object;
    const { counts } = this.views;
    // Objects that threads share have a negative count; objects with count 0 are never freed.
    counts[object >>> 2] += count * Math.sign(counts[object >>> 2]);
    return object;
  }
  /** Add so many references to `object` that it is never freed. Return `object`. */
  keep(object) {
    return this.share(object, MANY_REFERENCES);
  }
  /** Return a field that is never freed. */
  keptField(object, index) {
    return this.keep(this.field(object, index));
  }

  /** Call `use` with the address of a copy of `bytes`, followed by a zero, in Lean's memory. */
  withCopy(bytes, use) {
    const pointer = this.x.malloc(bytes.length + 1);
    // Writing to address 0 would not fail.
    if (pointer === 0) throw new Error('Lean has no memory left');
    this.bytes.set(bytes, pointer);
    this.bytes[pointer + bytes.length] = 0;
    const result = use(pointer);
    this.x.free(pointer);
    return result;
  }
  /** Make a string of exactly these characters, which may include NUL. */
  makeString(text) {
    const bytes = Buffer.from(text, 'utf8');
    const characters = Array.from(text).length;
    return this.withCopy(bytes, (at) =>
      this.x.lean_mk_string_unchecked(at, bytes.length, characters),
    );
  }
  /** Return a string. Throws if its bytes are not UTF-8. */
  readString(object) {
    const size = this.words[(object >>> 2) + 2] - 1;
    return UTF8.decode(this.bytes.slice(object + 20, object + 20 + size));
  }

  /** Make an object with these fields and `spare` zero bytes after them. */
  makeObject(tag, fields, spare = 0) {
    const size = 8 + 4 * fields.length + spare;
    const object = this.x.lean_alloc_object(size);
    const { bytes, words } = this;
    words[object >>> 2] = 1;
    bytes[object + 4] = size & 255;
    bytes[object + 5] = size >> 8;
    bytes[object + 6] = fields.length;
    bytes[object + 7] = tag;
    words.set(fields, (object >>> 2) + 2);
    bytes.fill(0, object + size - spare, object + size);
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

  /** Return the items of a Lean List. */
  readList(object) {
    const items = [];
    for (; !this.isScalar(object); object = this.field(object, 1)) {
      items.push(this.field(object, 0));
    }
    return items;
  }
  /** Make a Lean List, which owns its items. */
  makeList(items) {
    return items.reduceRight((rest, item) => this.makeObject(1, [item, rest]), box(0));
  }

  /** Return a natural number: a small one as a number, a large one as decimal digits. */
  readNatural(object) {
    if (this.isScalar(object)) return object >>> 1;
    return this.readString(this.x.l_Nat_reprFast(this.keep(object)));
  }
  /** Make a natural number from a small number or from decimal digits. */
  makeNatural(natural) {
    if (typeof natural === 'number') return box(natural);
    return this.keep(this.withCopy(Buffer.from(natural), (at) => this.x.lean_cstr_to_nat(at)));
  }

  /** Make a name from its components, which are texts and numbers. */
  makeName(components) {
    return components.reduce((prefix, component) => {
      const name =
        typeof component === 'string'
          ? this.x.lean_name_mk_string(prefix, this.makeString(component))
          : this.x.lean_name_mk_numeral(prefix, box(component));
      return this.keep(name);
    }, box(0));
  }
  parseName(text) {
    return this.keep(this.x.l_String_toName(this.makeString(text)));
  }
  /** Return the components of a name. */
  readName(name) {
    const components = [];
    for (; !this.isScalar(name); name = this.field(name, 0)) {
      const last = this.field(name, 1);
      components.unshift(this.tag(name) === 1 ? this.readString(last) : this.readNatural(last));
    }
    return components;
  }

  /** Return the value of an IO result. Throw a LeanError with its message if it is an error. */
  unwrapIO(result, what) {
    if (this.isScalar(result)) return result;
    if (this.tag(result) !== 1) return this.field(result, 0);
    const error = this.field(result, 0);
    const text = this.isScalar(error) ? box(0) : this.field(error, 0);
    const isText = !this.isScalar(text) && this.tag(text) === TAG.string;
    throw new LeanError(`${what}: ${isText ? this.readString(text) : 'failed'}`);
  }
}

module.exports = { ForbiddenCall, PAGE, Runtime, box, readProgram };
