'use strict';
/** Lean's parser and elaborator, from the state after the header. */
const { box } = require('./runtime.js');

const KIND = ['axiom', 'definition', 'theorem', 'opaque', 'quotient', 'inductive', 'constructor'];
// In the order of Lean's ConstantKind.
const ORIGINAL = ['definition', 'theorem', 'axiom', 'opaque'];
const SYNTAX = ['missing', 'node', 'atom', 'ident'];
const PRIVATE_LEVEL = 2; // import definitions with their bodies
// Otherwise an unknown name in a statement, such as one of Mathlib's, is a variable, and what is to
// be proved is another statement. A header can allow it nevertheless.
const FIRST_COMMAND = 'set_option autoImplicit false';

const NONE = box(0);

class BadHeader extends Error {}

class Frontend {
  /** Import the modules of `header` and elaborate its commands. Throws BadHeader. */
  static import(runtime, header) {
    const frontend = new Frontend(runtime, {});
    frontend.options = runtime.keep(runtime.x.lean_internal_get_default_options(NONE));
    const { environment, state, context } = frontend.importHeader(header);
    frontend.base = frontend.elaborateHeader(context, environment, state);
    return frontend;
  }

  /** `roots` are the addresses of what an import leaves: see the getter. */
  constructor(runtime, { options, noMessages, base }) {
    this.rt = runtime;
    this.x = runtime.x;
    this.options = options; // Options
    this.noMessages = noMessages; // an empty MessageLog
    this.base = base; // the Command.State after the header
  }
  get roots() {
    return { options: this.options, noMessages: this.noMessages, base: this.base };
  }
  get environment() {
    return this.rt.keptField(this.base, 0);
  }

  importHeader(header) {
    const { rt, x } = this;
    const text = header + '\n';
    const context = this.inputContext(text);
    const parsed = rt.keep(rt.io(x.l_Lean_Parser_parseHeader(context), 'header'));
    const [syntax, rest] = [rt.keptField(parsed, 0), rt.field(parsed, 1)];
    const [state, log] = [rt.keptField(rest, 0), rt.keptField(rest, 1)];
    const imports = rt.keep(x.l_Lean_Elab_headerToImports(syntax, 1));
    const [trust, leak, extensions, noArtifacts] = [0, 1, 1, 3];
    const environment = rt.keep(
      rt.io(
        x.l_Lean_importModules(
          imports, this.options, trust, rt.makeEmptyArray(), leak, extensions, PRIVATE_LEVEL,
          noArtifacts,
        ),
        'import',
      ),
    );
    this.noMessages = log;
    return { environment, state, context };
  }

  elaborateHeader(context, environment, state) {
    const { rt, x } = this;
    let command = x.l_Lean_Elab_Command_mkState(environment, this.noMessages, this.options);
    rt.keep(command);
    const first = this.start(FIRST_COMMAND);
    command = this.runCommand(first.context, command, first.state).command;
    for (;;) {
      const step = this.runCommand(context, command, state);
      const error = step.messages.find(isError);
      if (error) throw new BadHeader(error.text);
      if (step.done) return step.command;
      [command, state] = [step.command, step.state];
    }
  }

  inputContext(text) {
    const end = box(Buffer.byteLength(text));
    const [source, file] = [this.rt.makeString(text), this.rt.makeString('proof.lean')];
    return this.rt.keep(this.x.l_Lean_Parser_mkInputContext___redArg(source, file, 0, end));
  }

  /** Parse and elaborate the next command of `context`, from the Command.State `command`. */
  runCommand(context, command, state) {
    const { rt, x } = this;
    const parserMessages = this.parse(context, command, state).messages;
    const commands = rt.makeEmptyArray();
    const frontend = rt.makeObject(0, [rt.keep(command), rt.keep(state), NONE, commands]);
    const reference = rt.keep(x.lean_st_mk_ref(frontend));
    const done = rt.io(x.l_Lean_Elab_Frontend_processCommand(context, reference), 'elaborate');
    const after = rt.keep(x.lean_st_ref_get(reference));
    const next = rt.keptField(after, 0);
    const parser = rt.keptField(after, 1);
    return {
      done: done === box(1),
      command: next,
      state: parser,
      environment: rt.keptField(next, 0),
      position: rt.field(parser, 0) >>> 1, // bytes
      syntax: rt.readArray(rt.field(after, 3)).at(-1),
      parserMessages,
      messages: [...parserMessages, ...this.readMessages(rt.field(next, 1))],
    };
  }

  /** Parse the next command. The elaborator drops a parser's error where it can go on. */
  parse(context, command, state) {
    const { rt, x } = this;
    const scope = rt.field(rt.field(command, 2), 0);
    const [options, namespace, open] = [1, 2, 3].map((index) => rt.keptField(scope, index));
    const environment = rt.keptField(command, 0);
    const module = rt.keep(rt.makeObject(0, [environment, options, namespace, open]));
    const parsed = rt.keep(
      x.l_Lean_Parser_parseCommand(context, module, rt.keep(state), this.noMessages),
    );
    const messages = this.readMessages(rt.field(rt.field(parsed, 1), 1));
    return { syntax: rt.field(parsed, 0), messages };
  }

  readMessages(log) {
    const { rt, x } = this;
    return rt.readArray(rt.keep(x.l_Lean_MessageLog_toArray(rt.keep(log)))).map((message) => {
      const json = x.l_Lean_Json_compress(x.l_Lean_Message_toJson(rt.keep(message)));
      const { severity, kind, data, pos } = JSON.parse(rt.readString(json));
      return { severity, kind, line: pos.line, text: data };
    });
  }

  /** The parser's context and state at the first command of `text`. */
  start(text) {
    const context = this.inputContext(text);
    const parsed = this.rt.keep(this.rt.io(this.x.l_Lean_Parser_parseHeader(context), 'parse'));
    return { context, state: this.rt.keptField(this.rt.field(parsed, 1), 0) };
  }

  /** What `parse` and `runCommand` need for the first command of `text` after the header. */
  open(text) {
    const { context, state } = this.start(text);
    return [context, this.base, state];
  }

  /**
   * The syntax of the first command of `text`: every node, as `{kind, parts}`, and every leaf, as
   * `{kind: null, word, isName}`.
   */
  nodes(text) {
    const found = [];
    const read = (syntax) => {
      const node = this.node(syntax);
      node.parts = node.parts.map(read);
      found.push(node);
      return node;
    };
    read(this.parse(...this.open(text)).syntax);
    return found;
  }
  node(syntax) {
    const { rt } = this;
    switch (SYNTAX[rt.constructorOf(syntax)]) {
      case 'node':
        return { kind: this.kindOf(syntax), parts: rt.readArray(rt.field(syntax, 2)) };
      case 'atom':
        return { kind: null, parts: [], word: rt.readString(rt.field(syntax, 1)), isName: false };
      case 'ident': {
        const word = rt.readName(rt.field(syntax, 2)).join('.');
        return { kind: null, parts: [], word, isName: true };
      }
      default:
        return { kind: null, parts: [], word: '', isName: false };
    }
  }

  /** Elaborate `text`, from which one command is taken, on top of the header. */
  elaborate(text) {
    const step = this.runCommand(...this.open(text));
    return { ...step, isWhole: step.position === Buffer.byteLength(text) };
  }

  isTheorem(syntax) {
    const { rt } = this;
    if (this.kindOf(syntax) !== 'Lean.Parser.Command.declaration') return false;
    return this.kindOf(rt.readArray(rt.field(syntax, 2))[1]) === 'Lean.Parser.Command.theorem';
  }
  kindOf(syntax) {
    return this.rt.isScalar(syntax) ? '' : this.rt.readName(this.rt.field(syntax, 1)).join('.');
  }

  /** The ConstantInfo of a name, or null. */
  findConstant(environment, name) {
    const { rt, x } = this;
    const found = x.l_Lean_Environment_find_x3f(rt.share(environment), rt.share(name), 0);
    return rt.isScalar(found) ? null : rt.field(found, 0);
  }
  kindOfConstant(constant) {
    return KIND[this.rt.tag(constant)] ?? 'recursor';
  }
  /** The names of a constant's universe parameters. */
  parametersOf(constant) {
    const head = this.rt.field(this.rt.field(constant, 0), 0);
    return this.rt.readList(this.rt.field(head, 1));
  }
  /**
   * What a constant of the header is where it was declared. The library's modules carry theorems
   * without proofs, so that they look like axioms.
   */
  originalKind(name, constant) {
    const { rt, x } = this;
    const found = x.l_Lean_getOriginalConstKind_x3f(rt.share(this.environment), rt.share(name));
    return rt.isScalar(found) ? this.kindOfConstant(constant) : ORIGINAL[rt.field(found, 0) >>> 1];
  }

  /** The header's environment as the kernel has it. */
  kernel() {
    return this.x.lean_elab_environment_to_kernel_env(this.rt.share(this.environment));
  }
}

const isError = (message) => message.severity === 'error';

module.exports = { Frontend, isError };
