'use strict';
/**
 * Lean's parser and elaborator: imports a header (the code before a statement, such as imports),
 * then parses and elaborates commands after it.
 *
 * Calls go to functions of Lean that are exported by lean.wasm, such as
 * `l_Lean_Parser_parseCommand` for `Lean.Parser.parseCommand`. Fields of Lean's structures are read
 * by their index.
 */
const { box } = require('./runtime.js');

// Lean's ConstantInfo constructors, in their order; after these comes the recursor.
const KINDS = ['axiom', 'definition', 'theorem', 'opaque', 'quotient', 'inductive', 'constructor'];
// Lean's ConstantKind, in its order, as far as it is needed.
const ORIGINAL = ['definition', 'theorem', 'axiom', 'opaque'];
// Lean's Syntax constructors, in their order.
const SYNTAX = ['missing', 'node', 'atom', 'ident'];
const PRIVATE_LEVEL = 2; // the import level at which definitions have their bodies
// A command before those of the header. Without it, an unknown name in a statement, such as a name
// of Mathlib, would be a variable, and another statement would be proved. A header can undo it.
const FIRST_COMMAND = 'set_option autoImplicit false';
// A command after which declarations are added without a check by the kernel.
const UNCHECKED_COMMAND = 'set_option debug.skipKernelTC true';
const HEARTBEATS = 200000000; // the kernel's limit of work for one check
const SEVERITY = ['information', 'warning', 'error'];
const END = 'Lean.Parser.Command.eoi'; // what the parser returns at the end of a text
// A snapshot is what Lean's language server keeps of an elaborated command, so that after an edit
// only the changed part is elaborated again. This is the type of a theorem's snapshot.
const DECLARATIONS = 'Lean.Elab.DefsParsedSnapshot';

const NONE = box(0);

class Frontend {
  /**
   * Import the modules of `header` and elaborate its commands. Return the objects that a Frontend
   * needs (the roots of an image). Throw the first error.
   */
  static import(runtime, header) {
    const frontend = new Frontend(runtime, {});
    const { x } = runtime;
    const { context, syntax, parserState, log } = frontend.parseHeader(header + '\n');
    frontend.noMessages = log;
    frontend.options = runtime.keep(x.lean_internal_get_default_options(NONE));
    const environment = frontend.importModules(syntax);
    frontend.removeLinters();
    const first = runtime.keep(
      x.l_Lean_Elab_Command_mkState(environment, log, frontend.options),
    );
    const beginning = frontend.parseHeader('').parserState;
    const run = (command, state) =>
      frontend.elaborateAll(frontend.inputContext(command), state, beginning);
    const base = frontend.elaborateAll(context, run(FIRST_COMMAND, first), parserState);
    const unchecked = run(UNCHECKED_COMMAND, base);
    const { options, noMessages } = frontend;
    return { options, noMessages, beginning, base, unchecked };
  }

  constructor(runtime, { options, noMessages, beginning, base, unchecked }) {
    this.rt = runtime;
    this.x = runtime.x; // the functions that lean.wasm exports
    this.options = options; // Lean's default Options
    this.noMessages = noMessages; // an empty MessageLog
    this.beginning = beginning; // the parser's state before a text without a header
    this.base = base; // the Command.State after the header
    this.unchecked = unchecked; // the same with the kernel's checks turned off
  }
  /** Return the environment after the header. */
  get environment() {
    return this.rt.field(this.base, 0);
  }

  /** Return the environment with the modules that a header's syntax imports. */
  importModules(syntax) {
    const { rt, x } = this;
    const imports = rt.keep(x.l_Lean_Elab_headerToImports(syntax, 1));
    // Lean's parameters trustLevel, leakEnv and loadExts, and an empty map, which is box(1).
    const [trust, leak, extensions, noArtifacts] = [0, 1, 1, 3];
    const imported = x.l_Lean_importModules(
      imports, this.options, trust, rt.makeEmptyArray(), leak, extensions, PRIVATE_LEVEL,
      noArtifacts,
    );
    return rt.keep(rt.unwrapIO(imported, 'import'));
  }

  /**
   * Remove all linters. They only write warnings, which are not used here. One linter runs the
   * interpreter, after which the whole memory would have to be put back (memory.js).
   */
  removeLinters() {
    const { rt, x } = this;
    const linters = rt.words[x.l_Lean_Elab_Command_lintersRef.value >>> 2];
    x.lean_st_ref_set(linters, rt.makeEmptyArray());
  }

  /** Return the parser's InputContext for a text. */
  inputContext(text) {
    const end = box(Buffer.byteLength(text));
    const [source, file] = [this.rt.makeString(text), this.rt.makeString('proof.lean')];
    return this.rt.keep(this.x.l_Lean_Parser_mkInputContext___redArg(source, file, 0, end));
  }

  /** Elaborate all commands of `context`, beginning in a Command.State. Return the last state. */
  elaborateAll(context, commandState, parserState) {
    for (;;) {
      const parsed = this.parse(context, commandState, parserState);
      if (this.toTree(parsed.syntax).kind === END) {
        throwFirstError(parsed.messages);
        return commandState;
      }
      const after = this.elaborateFrom(context, commandState, parsed);
      throwFirstError([...parsed.messages, ...after.messages]);
      commandState = after.commandState;
      parserState = parsed.parserState;
    }
  }

  /**
   * Elaborate a parsed command in a Command.State, as Lean's language server does. `old` may be the
   * snapshot of a theorem with the same statement, which is then not elaborated again. Return the
   * new Command.State, the environment, the messages and the snapshot.
   */
  elaborateFrom(input, commandState, { syntax }, old = null) {
    const { rt, x } = this;
    const promise = rt.keep(x.lean_io_promise_new());
    const before =
      old === null ? NONE : rt.makeObject(1, [rt.makeObject(0, [NONE, rt.share(old)])]);
    // A SnapshotBundle: the old snapshot, and a promise that Lean resolves with the new one.
    const bundle = rt.makeObject(1, [rt.makeObject(0, [before, promise])]);
    const reference = rt.keep(x.lean_st_mk_ref(rt.share(commandState)));
    const context = this.commandContext(input, bundle);
    rt.unwrapIO(x.l_Lean_Elab_Command_elabCommandTopLevel(syntax, context, reference), 'elaborate');
    x.lean_io_promise_resolve(NONE, promise); // a command that is no theorem does not resolve it
    const after = rt.keep(x.lean_st_ref_get(reference));
    const snapshot = rt.field(x.lean_task_get(x.lean_io_promise_result_opt(promise)), 0);
    const logs = [rt.field(after, 1), ...this.logsOf(snapshot)];
    return {
      commandState: after,
      environment: rt.keptField(after, 0),
      messages: logs.flatMap((log) => this.readMessages(log)),
      snapshot,
    };
  }

  /** Return a Command.Context for a command at top level that cannot be cancelled. */
  commandContext(input, bundle) {
    const [file, lines] = [1, 2].map((index) => this.rt.keptField(input, index));
    const [depth, position, scope] = [box(0), box(0), box(1)];
    const fields = [file, lines, depth, position, NONE, NONE, scope, NONE, bundle, NONE];
    return this.rt.keep(this.rt.makeObject(0, fields, 1));
  }

  /** Return the message logs of a DynamicSnapshot and of the snapshots that it contains. */
  logsOf(snapshot) {
    const { rt, x } = this;
    if (rt.isScalar(snapshot)) return [];
    const tree = rt.keep(x.lean_thunk_get_core(rt.field(snapshot, 1)));
    const snapshots = rt.readArray(rt.keep(x.l_Lean_Language_SnapshotTree_getAll(tree)));
    return snapshots.map((part) => rt.field(rt.field(part, 1), 0));
  }

  /** Parse the next command. Return the parser's messages too: the elaborator may drop them. */
  parse(context, commandState, parserState) {
    const { rt, x } = this;
    const scope = rt.field(rt.field(commandState, 2), 0);
    const [options, namespace, open] = [1, 2, 3].map((index) => rt.keptField(scope, index));
    const environment = rt.keptField(commandState, 0);
    const module = rt.keep(rt.makeObject(0, [environment, options, namespace, open]));
    const parsed = rt.keep(
      x.l_Lean_Parser_parseCommand(context, module, rt.keep(parserState), this.noMessages),
    );
    const after = rt.keptField(rt.field(parsed, 1), 0);
    return {
      syntax: rt.keptField(parsed, 0),
      parserState: after,
      position: rt.field(after, 0) >>> 1, // bytes
      messages: this.readMessages(rt.field(rt.field(parsed, 1), 1)),
    };
  }

  /** Return the messages of a log. `kind` and `text` are functions, because they are slow. */
  readMessages(log) {
    const { rt, x } = this;
    return rt.readArray(rt.keep(x.l_Lean_MessageLog_toArray(rt.keep(log)))).map((message) => ({
      severity: SEVERITY[rt.byte(message, 5, 1)],
      kind: () => rt.readName(x.l_Lean_MessageData_kind(rt.keptField(message, 4))).join('.'),
      text: () => {
        const json = x.l_Lean_Json_compress(x.l_Lean_Message_toJson(rt.keep(message)));
        const { severity, pos, data } = JSON.parse(rt.readString(json));
        return `${severity}, line ${pos.line}: ${data}`;
      },
    }));
  }

  /** Parse the header of `text`. Return InputContext, syntax, parser's state and message log. */
  parseHeader(text) {
    const { rt, x } = this;
    const context = this.inputContext(text);
    const parsed = rt.keep(rt.unwrapIO(x.l_Lean_Parser_parseHeader(context), 'header'));
    const rest = rt.field(parsed, 1);
    const [parserState, log] = [rt.keptField(rest, 0), rt.keptField(rest, 1)];
    return { context, syntax: rt.keptField(parsed, 0), parserState, log };
  }

  /** Parse the first command of `text`. `isWhole`: there is no text after it. */
  parseCommand(text) {
    const context = this.inputContext(text);
    const parsed = this.parse(context, this.base, this.beginning);
    return { ...parsed, context, isWhole: parsed.position === Buffer.byteLength(text) };
  }

  /**
   * Return syntax as a tree of JavaScript objects: a node is `{kind, parts}`, a leaf is
   * `{kind: null, parts: [], word, isName}`.
   */
  toTree(syntax) {
    const { rt } = this;
    const part = (index) => rt.field(syntax, index);
    switch (SYNTAX[rt.constructorOf(syntax)]) {
      case 'node': {
        const parts = rt.readArray(part(2)).map((inner) => this.toTree(inner));
        return { kind: rt.readName(part(1)).join('.'), parts };
      }
      case 'atom':
        return { kind: null, parts: [], word: rt.readString(part(1)), isName: false };
      case 'ident':
        return { kind: null, parts: [], word: rt.readName(part(2)).join('.'), isName: true };
      default:
        return { kind: null, parts: [], word: '', isName: false };
    }
  }

  /** Elaborate a command after the header. */
  elaborate(command) {
    return this.elaborateFrom(command.context, this.base, command);
  }

  /**
   * Elaborate a command after the header without checks by the kernel. The statement is elaborated
   * once, for all proofs that begin with it.
   */
  elaborateUnchecked(command, statement) {
    const { statements } = this.rt;
    const old = statements.get(statement);
    const result = this.elaborateFrom(command.context, this.unchecked, command, old);
    if (!statements.has(statement)) statements.set(statement, this.dropProof(result.snapshot));
    return result;
  }

  /** Return a snapshot without its proof, for `elaborateFrom`; null if it has another type. */
  dropProof(snapshot) {
    const { rt, x } = this;
    if (rt.isScalar(snapshot)) return null;
    const [type, declarations] = [0, 1].map((index) => rt.field(rt.field(snapshot, 0), index));
    if (rt.readName(type).join('.') !== DECLARATIONS) return null; // a macro, as for `theorem a.b`
    const [theorem] = rt.readArray(rt.field(declarations, 1));
    const processed = x.lean_task_get(rt.field(rt.field(theorem, 1), 3));
    if (rt.isScalar(processed)) return null;
    const header = rt.field(processed, 0); // a HeaderProcessedSnapshot
    // Clear the fields of the proof: its tactics' syntax and snapshot, and the proof's own syntax.
    for (const index of [3, 4, 5]) rt.setField(header, index, NONE);
    return x.l_Lean_Language_SnapshotTask_finished___redArg(NONE, rt.keep(snapshot));
  }

  /** Return whether the kernel accepts a declaration. The call consumes both arguments. */
  accepts(environment, declaration) {
    this.x._ZN4lean15reset_heartbeatEv(); // otherwise heartbeats add up over all checks
    const added = this.x.lean_elab_add_decl(environment, HEARTBEATS, declaration, NONE);
    return this.rt.tag(added) === 1;
  }

  /** Return the ConstantInfo of a name in an environment, or null. */
  findConstant(environment, name) {
    const { rt, x } = this;
    const constant = x.l_Lean_Environment_find_x3f(rt.share(environment), rt.share(name), 0);
    return rt.isScalar(constant) ? null : rt.field(constant, 0);
  }
  /** Return the kind of a ConstantInfo, such as "theorem". */
  kindOfConstant(constant) {
    return KINDS[this.rt.tag(constant)] ?? 'recursor';
  }
  /** Return the names of a constant's universe parameters. */
  parametersOf(constant) {
    const head = this.rt.field(this.rt.field(constant, 0), 0);
    return this.rt.readList(this.rt.field(head, 1));
  }
  /**
   * Return the kind with which a constant of the header was declared. This may differ from
   * `kindOfConstant`: compiled modules have theorems without proofs, which look like axioms.
   */
  originalKind(name, constant) {
    const { rt, x } = this;
    const kind = x.l_Lean_getOriginalConstKind_x3f(rt.share(this.environment), rt.share(name));
    return rt.isScalar(kind) ? this.kindOfConstant(constant) : ORIGINAL[rt.field(kind, 0) >>> 1];
  }

  /** Return the environment after the header, converted to the kernel's type of environments. */
  kernelEnvironment() {
    return this.x.lean_elab_environment_to_kernel_env(this.rt.share(this.environment));
  }
}

const isError = (message) => message.severity === 'error';

/** Throw the first error among messages, if there is one. */
function throwFirstError(messages) {
  const error = messages.find(isError);
  if (error) throw new Error(error.text());
}

module.exports = { Frontend, HEARTBEATS, isError };
