'use strict';
/**
 * Replaces JavaScript functions that call Lean and catch C++ exceptions by WebAssembly functions.
 *
 * Lean's C++ was compiled for WebAssembly engines without exceptions. So a call that may throw goes
 * through an import `invoke_SIGNATURE(index, ...)`, a JavaScript function that calls a function in
 * Lean's table and catches exceptions. The kernel makes 300,000 such calls for one proof by
 * `omega`, and switching between WebAssembly and JavaScript took half of the kernel's time. This
 * module builds the same functions in WebAssembly, byte by byte.
 *
 * Lean's instance needs its imports before its own table exists. So an import only calls the
 * function in a slot of a second table, which `connect` fills once Lean's table exists.
 */

/** The name of an import with its signature: the type of the result, then of the parameters. */
const NAMED = /^invoke_([vijfd])([ijfd]*)$/;
// The imports that throw C++ exceptions, which are numbers in JavaScript.
const THROW = [
  '__cxa_throw', '__cxa_rethrow', '__cxa_rethrow_primary_exception', '__resumeException',
  '_emscripten_throw_longjmp',
];

// WebAssembly's binary format, as far as it is used here: header of a module, types of values,
// instructions that push a zero.
const MAGIC = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
const TYPES = { i: 0x7f, j: 0x7e, f: 0x7d, d: 0x7c };
const ZEROS = { v: [], i: [0x41, 0], j: [0x42, 0], f: [0x43, 0, 0, 0, 0] };
ZEROS.d = [0x44, 0, ...ZEROS.f.slice(1), 0, 0, 0];
const [FUNCTION, TABLE, TAG, FUNCREF] = [0, 1, 4, 0x70]; // kinds of imports; a table's items
// Opcodes: local.get and local.set are GET and SET, i32.const is NUMBER.
const [TRY, CATCH, END, CALL, CALL_INDIRECT] = [0x06, 0x07, 0x0b, 0x10, 0x11];
const [GET, SET, NUMBER] = [0x20, 0x21, 0x41];
const NO_RESULT = 0x40; // the type of a block without a result

/** Encode a number below 2 ** 13 in two bytes that are right as signed and as unsigned LEB128. */
const encodeNumber = (value) => [(value & 127) | 128, value >> 7];
const encodeVector = (items) => [...encodeNumber(items.length), ...items.flat()];
const encodeWithSize = (bytes) => [
  (bytes.length & 127) | 128, ...encodeNumber(bytes.length >> 7), ...bytes,
];
const encodeText = (characters) => encodeVector([...Buffer.from(characters)]);
const encodeType = (result, parameters) => [
  0x60, ...encodeVector([...parameters].map((item) => TYPES[item])),
  ...encodeVector(result === 'v' ? [] : [TYPES[result]]),
];
/** Return instructions that push `count` local variables, from index `first` on. */
const pushLocals = (first, count) =>
  Array.from({ length: count }, (_, at) => [GET, first + at]).flat();

/**
 * Build a WebAssembly module with one function for each signature, instantiate it, and return its
 * exports. `types` (first those of the functions), `imports`, `tables` and `exports` are items of
 * the module's sections: an import or export is a list of its name and bytes, the others are bytes.
 * The functions are exported too. `env` has the values of the imports by name. `body(signature,
 * index)` returns the bytes of a function's body, without its END.
 */
function instantiate(signatures, { types, imports, tables, exports, env }, body) {
  const first = imports.filter(([, kind]) => kind === FUNCTION).length;
  const functions = signatures.map(({ name }, at) => [name, FUNCTION, ...encodeNumber(first + at)]);
  const encodeEntry = ([name, ...rest]) => [...encodeText(name), ...rest];
  const sections = {
    1: types,
    2: imports.map((item) => [...encodeText('env'), ...encodeEntry(item)]),
    3: signatures.map((_, at) => encodeNumber(at)),
    4: tables,
    7: [...exports, ...functions].map(encodeEntry),
    10: signatures.map((item, at) => encodeWithSize([...body(item, at), END])),
  };
  const bytes = Object.entries(sections).flatMap(([id, items]) => [
    +id, ...encodeWithSize(encodeVector(items)),
  ]);
  const module = new WebAssembly.Module(new Uint8Array([...MAGIC, ...bytes]));
  return new WebAssembly.Instance(module, { env }).exports;
}

/**
 * The `invoke_` functions of one Lean instance. Lean imports trampolines, each of which calls a
 * function in the table `slots`; that function calls a function in Lean's table and catches
 * exceptions.
 */
class InvokeWrappers {
  /** Replace the `invoke_` functions in `imports`, and the functions that throw. */
  constructor(imports) {
    this.signatures = Object.keys(imports).flatMap((name) => {
      const [, result, parameters] = NAMED.exec(name) ?? [];
      return result ? [{ name, result, parameters }] : [];
    });
    this.tag = new WebAssembly.Tag({ parameters: [] });
    const { slots, ...trampolines } = this.buildTrampolines();
    this.slots = slots;
    Object.assign(imports, trampolines);
    for (const name of THROW) imports[name] = this.wrapThrow(imports[name]);
  }

  /** Return the trampolines by name, and the table `slots`. */
  buildTrampolines() {
    const count = encodeNumber(this.signatures.length);
    const parts = {
      types: this.signatures.map(({ result, parameters }) => encodeType(result, `i${parameters}`)),
      imports: [],
      tables: [[FUNCREF, 0, ...count]],
      exports: [['slots', TABLE, 0]],
    };
    // No local variables; push all parameters and the slot's index; call the function in the slot.
    return instantiate(this.signatures, parts, ({ parameters }, at) => [
      0, ...pushLocals(0, parameters.length + 1), NUMBER, ...encodeNumber(at),
      CALL_INDIRECT, ...encodeNumber(at), 0,
    ]);
  }

  /** Fill the slots with functions that call into the table of Lean's `exports`. */
  connect(exports) {
    const count = this.signatures.length;
    const inner = this.signatures.map(({ result, parameters }) => encodeType(result, parameters));
    // The types of the imports `stack`, `restore`, `threw` and `tag`.
    const others = ['i', 'vi', 'vii', 'v'].map(([result, ...rest]) => encodeType(result, rest));
    const parts = {
      types: [
        ...this.signatures.map(({ result, parameters }) => encodeType(result, `i${parameters}`)),
        ...inner,
        ...others,
      ],
      imports: [
        ['stack', FUNCTION, ...encodeNumber(2 * count)],
        ['restore', FUNCTION, ...encodeNumber(2 * count + 1)],
        ['threw', FUNCTION, ...encodeNumber(2 * count + 2)],
        ['table', TABLE, FUNCREF, 0, 0],
        ['tag', TAG, 0, ...encodeNumber(2 * count + 3)],
      ],
      tables: [],
      exports: [],
      env: {
        stack: exports.emscripten_stack_get_current,
        restore: exports._emscripten_stack_restore,
        threw: exports.setThrew,
        table: exports.__indirect_function_table,
        tag: this.tag,
      },
    };
    const catching = instantiate(this.signatures, parts, ({ result, parameters }, at) => {
      // Parameter 0 is the index in Lean's table; the local variable `stack` keeps the stack
      // pointer. Call the function in Lean's table. On an exception restore the stack pointer, call
      // setThrew(1, 0) as emscripten does, and return zero. CALL 0, 1, 2: the imported functions.
      const stack = parameters.length + 1;
      return [
        1, 1, TYPES.i, CALL, 0, SET, stack,
        TRY, TYPES[result] ?? NO_RESULT,
        ...pushLocals(1, parameters.length), ...pushLocals(0, 1),
        CALL_INDIRECT, ...encodeNumber(count + at), 0,
        CATCH, 0,
        ...pushLocals(stack, 1), CALL, 1, NUMBER, 1, NUMBER, 0, CALL, 2, ...ZEROS[result],
        END,
      ];
    });
    this.signatures.forEach(({ name }, at) => this.slots.set(at, catching[name]));
  }

  /** Wrap `original`: if it throws a number, throw a WebAssembly exception instead. */
  wrapThrow(original) {
    const throwing = (...values) => {
      try {
        return original(...values);
      } catch (error) {
        throw typeof error === 'number' ? new WebAssembly.Exception(this.tag, []) : error;
      }
    };
    return Object.assign(throwing, original);
  }
}

module.exports = { InvokeWrappers };
