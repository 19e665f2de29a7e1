'use strict';
/**
 * Is `statement` followed by `proof` a proof of `statement`? The proof text is an adversary's.
 *
 * 1. Both are elaborated from the same environment, the statement alone with `sorry`.
 * 2. The text is one theorem, from its first to its last byte.
 * 3. No error among the messages of the parser and of the elaborator, no `sorry`.
 * 4. The theorem proved has the type of the statement.
 * 5. It uses no new axiom, none of the library's that a proof may not use, no compiled code.
 * 6. The kernel accepts it again in the environment as it was before: a proof can turn the
 *    kernel off while it is elaborated, not here.
 */
const { box } = require('./runtime.js');

// The library's modules carry its theorems without their proofs, so they look like axioms: its
// true axioms have to be told by name. The last two make the kernel run compiled code.
const DISTRUSTED = new Set([
  'sorryAx', 'Lean.trustCompiler', 'Lean.ofReduceBool', 'Lean.ofReduceNat',
  'Lean.reduceBool', 'Lean.reduceNat',
]);
const KIND = ['axiom', 'definition', 'theorem', 'opaque', 'quotient', 'inductive', 'constructor'];
const CHECKABLE = new Set(['definition', 'theorem', 'opaque']);
const KERNEL_HEARTBEATS = 200000000;
const PRIVATE_LEVEL = 2; // import definitions with their bodies
const MESSAGES = { count: 5, characters: 500 };

const NONE = box(0);

class BadHeader extends Error {}

class Verifier {
  /** Import the modules of `header` and elaborate its commands. Throws BadHeader. */
  static import(runtime, header) {
    const verifier = new Verifier(runtime, {});
    verifier.options = runtime.keep(runtime.x.lean_internal_get_default_options(NONE));
    const { environment, state, context } = verifier.importHeader(header);
    verifier.base = verifier.elaborateHeader(context, environment, state);
    return verifier;
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
    const parserMessages = this.parserMessages(context, command, state);
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

  // The elaborator drops a parser's error where it can go on; so the parser is asked by itself.
  parserMessages(context, command, state) {
    const { rt, x } = this;
    const scope = rt.field(rt.field(command, 2), 0);
    const [options, namespace, open] = [1, 2, 3].map((index) => rt.keptField(scope, index));
    const environment = rt.keptField(command, 0);
    const module = rt.keep(rt.makeObject(0, [environment, options, namespace, open]));
    const parsed = x.l_Lean_Parser_parseCommand(context, module, rt.keep(state), this.noMessages);
    return this.readMessages(rt.field(rt.field(parsed, 1), 1));
  }

  readMessages(log) {
    const { rt, x } = this;
    return rt.readArray(rt.keep(x.l_Lean_MessageLog_toArray(rt.keep(log)))).map((message) => {
      const json = x.l_Lean_Json_compress(x.l_Lean_Message_toJson(rt.keep(message)));
      const { severity, kind, data, pos } = JSON.parse(rt.readString(json));
      return { severity, kind, line: pos.line, text: data };
    });
  }

  /** Elaborate `text`, from which one command is taken, on top of the header. */
  elaborate(text) {
    const context = this.inputContext(text);
    const start = this.rt.io(this.x.l_Lean_Parser_parseHeader(context), 'parse');
    const state = this.rt.keptField(this.rt.field(this.rt.keep(start), 1), 0);
    const step = this.runCommand(context, this.base, state);
    return { ...step, isWhole: step.position === Buffer.byteLength(text) };
  }

  isTheorem(syntax) {
    const { rt } = this;
    if (this.kindOf(syntax) !== 'Lean.Parser.Command.declaration') return false;
    return this.kindOf(rt.readArray(rt.field(syntax, 2))[1]) === 'Lean.Parser.Command.theorem';
  }
  kindOf(syntax) {
    return this.rt.isScalar(syntax) ? '' : this.rt.readName(this.rt.field(syntax, 1));
  }

  findConstant(environment, name) {
    const { rt, x } = this;
    const found = x.l_Lean_Environment_find_x3f(rt.keep(environment), rt.keep(name), 0);
    return rt.isScalar(found) ? null : rt.keptField(found, 0);
  }
  kindOfConstant(constant) {
    return KIND[this.rt.tag(constant)] ?? 'recursor';
  }
  typeOf(constant) {
    const value = this.rt.field(constant, 0); // a TheoremVal, DefinitionVal, ...
    return this.rt.keptField(this.rt.field(value, 0), 2);
  }
  bodyOf(constant) {
    return this.rt.keptField(this.rt.field(constant, 0), 1);
  }
  usedConstants(expression) {
    return this.rt.readArray(this.rt.keep(this.x.l_Lean_Expr_getUsedConstants(expression)));
  }

  /** Why steps 5 and 6 refuse the constant `root` of `environment`; null where they do not. */
  replay(environment, root) {
    const { rt, x } = this;
    const base = rt.keptField(this.base, 0);
    let kernel = rt.keep(x.lean_elab_environment_to_kernel_env(base));
    const seen = new Set();

    const visit = (name) => {
      const text = rt.readName(name);
      if (seen.has(text)) return null;
      seen.add(text);
      if (DISTRUSTED.has(text)) return `uses ${text}`;
      if (this.findConstant(base, name) !== null) return null; // the header's
      const constant = this.findConstant(environment, name);
      if (constant === null) return `uses the unknown ${text}`;
      const kind = this.kindOfConstant(constant);
      if (!CHECKABLE.has(kind)) return `adds the ${kind} ${text}`;
      for (const expression of [this.typeOf(constant), this.bodyOf(constant)]) {
        for (const used of this.usedConstants(expression)) {
          const refusal = visit(rt.keep(used));
          if (refusal) return refusal;
        }
      }
      // A ConstantInfo and a Declaration have the same layout for these three kinds.
      const added = x.lean_add_decl(rt.keep(kernel), KERNEL_HEARTBEATS, rt.keep(constant), NONE);
      if (rt.tag(added) === 0) return `the kernel refuses ${text}`;
      kernel = rt.keptField(added, 0);
      return null;
    };
    return visit(root);
  }

  /** The verdict: `{why, messages}`, with `why` a name in reasons.py, or 'bad statement'. */
  check({ name, statement, proof }) {
    const constantName = this.rt.makeName(name);
    const trusted = this.elaborate(`${statement} sorry`);
    const goal = this.findConstant(trusted.environment, constantName);
    if (goal === null || !trusted.isWhole || trusted.messages.some(isError)) {
      return answer('bad statement', trusted.messages.map(show));
    }

    const proved = this.elaborate(statement + proof);
    const messages = proved.messages.map(show);
    if (!this.isTheorem(proved.syntax)) return answer('unparsable', ['not a theorem']);
    if (proved.parserMessages.some(isError)) return answer('unparsable', messages);
    if (!proved.isWhole) return answer('unparsable', ['text after the theorem', ...messages]);
    if (proved.messages.some(isError)) return answer('wrong_answer', messages);
    if (proved.messages.some((message) => message.kind === 'hasSorry')) {
      return answer('forbidden', ['sorry']);
    }

    const theorem = this.findConstant(proved.environment, constantName);
    if (theorem === null || this.kindOfConstant(theorem) !== 'theorem') {
      return answer('forbidden', [`${name} is not a theorem afterwards`]);
    }
    if (!(this.x.lean_expr_eqv(this.typeOf(theorem), this.typeOf(goal)) & 1)) {
      return answer('forbidden', ['the statement changed']);
    }
    const refusal = this.replay(proved.environment, constantName);
    return refusal ? answer('forbidden', [refusal]) : answer('passed', messages);
  }
}

const isError = (message) => message.severity === 'error';
const show = ({ severity, line, text }) =>
  `${severity}, line ${line}: ${text}`.slice(0, MESSAGES.characters);
const answer = (why, messages) => ({ why, messages: messages.slice(0, MESSAGES.count) });

module.exports = { Verifier, BadHeader };
