'use strict';
/**
 * The judge decides whether an export (export.js) is a proof of a statement. It alone does.
 *
 * It runs in a process of its own that a proof's text never enters, and elaborates nothing but the
 * benchmark's statement. Of the author it gets bytes, which it takes for data (replay.js).
 *
 * 1. It elaborates the statement with `sorry`: the theorem's name, universe parameters and type.
 * 2. The kernel checks each exported constant, and then the theorem: the judge's own name,
 *    parameters and type, with the exported value. The environment is the header's.
 * 3. Every constant of the header that exported terms mention is looked up here. It may be a
 *    theorem, a definition, ... or one of the three axioms; nothing runs compiled code.
 *
 * So a lying author gains nothing: what passes is a proof, whoever wrote it.
 */
const { exported } = require('./export.js');
const { HEARTBEATS, isError } = require('./frontend.js');
const { Replayer, declarationOf } = require('./replay.js');
const { box } = require('./runtime.js');
const { Refusal, keyOf } = require('./refusal.js');

const AXIOMS = new Set([['propext'], ['Classical', 'choice'], ['Quot', 'sound']].map(keyOf));
// With these the kernel runs compiled code.
const COMPILED = new Set([['Lean', 'reduceBool'], ['Lean', 'reduceNat']].map(keyOf));
// What these mean is built into the kernel, whatever their definition says. Where the header lacks
// one, an export that declared it would have the kernel say two things about it.
const BUILT_IN = new Set(
  [
    'Nat', 'Nat.zero', 'Nat.succ', 'Nat.add', 'Nat.sub', 'Nat.mul', 'Nat.div', 'Nat.mod', 'Nat.gcd',
    'Nat.pow', 'Nat.log2', 'Nat.beq', 'Nat.ble', 'Nat.land', 'Nat.lor', 'Nat.xor', 'Nat.shiftLeft',
    'Nat.shiftRight', 'Bool', 'Bool.true', 'Bool.false', 'Char', 'Char.ofNat', 'List', 'List.nil',
    'List.cons', 'String', 'String.mk', 'String.ofList', 'Eq', 'Eq.refl', 'Quot', 'Quot.mk',
    'Quot.lift', 'Quot.ind', 'Lean.reduceBool', 'Lean.reduceNat', 'eagerReduce',
  ].map((name) => keyOf(name.split('.'))),
);
const NO_CANCELLING = box(0);

class Judge {
  constructor(frontend) {
    this.lean = frontend;
    this.goals = new Map(); // by statement: problems come up many times
  }

  /** Return `{why}` about the statement, or about the export given for it; throw a Refusal. */
  answer({ name, statement }, exportBytes) {
    const goal = this.goal(name, statement);
    if (exportBytes === undefined) return { why: 'stated' };
    this.check(goal, exportBytes);
    return { why: 'passed' };
  }

  /** Step 1: `{name, params, type}`, the last as an export with the constants that the statement
   * adds: memory is put back. */
  goal(name, statement) {
    const key = keyOf([name, statement]);
    if (!this.goals.has(key)) this.goals.set(key, this.elaborate(name, statement));
    return this.goals.get(key);
  }

  elaborate(name, statement) {
    const { lean } = this;
    const command = lean.command(`${statement} sorry`);
    const { environment, messages } = lean.elaborate(command);
    const errors = [...command.messages, ...messages].filter(isError);
    if (errors.length) throw bad(...errors.map((error) => error.text()));
    if (!command.isWhole) throw bad('more than one command: those before it belong in its header');
    const theorem = lean.rt.parseName(name);
    const constant = lean.findConstant(environment, theorem);
    const kind = constant === null ? 'missing' : lean.kindOfConstant(constant);
    if (kind !== 'theorem') throw bad(`it declares no theorem of this name (${kind})`);
    return {
      name: lean.rt.readName(theorem),
      params: lean.parametersOf(constant).map((param) => lean.rt.readName(param)),
      type: exported(lean, environment, name, 'type'),
    };
  }

  check(goal, exportBytes) {
    const { rt, x } = this.lean;
    const stated = this.read(goal.type);
    const proof = this.read(exportBytes);
    // The statement means what its own constants mean here, whatever the author says of them.
    const added = proof.constants.filter(({ key }) => !stated.keys.has(key));
    for (const { key, name } of added) {
      if (BUILT_IN.has(key)) throw new Refusal('forbidden', [`declares ${name.join('.')}`]);
    }
    for (const name of proof.mentioned) {
      if (!stated.keys.has(keyOf(name)) && !proof.keys.has(keyOf(name))) this.allow(name);
    }
    x._ZN4lean15reset_heartbeatEv(); // they count on from one check to the next
    let kernel = this.lean.kernel();
    for (const { name, declaration } of [...stated.constants, ...added]) {
      kernel = this.add(kernel, name, declaration);
    }
    const params = rt.makeList(goal.params.map((name) => rt.makeName(name)));
    const head = [rt.makeName(goal.name), params, stated.root, proof.root];
    this.add(kernel, goal.name, declarationOf(rt, 'theorem', ...head));
  }

  /** Return an export's constants, their keys, its last expression, the names it mentions. */
  read(bytes) {
    const constants = [];
    const replayer = new Replayer(this.lean.rt);
    const root = replayer.read(bytes, (name, declaration) => {
      constants.push({ key: keyOf(name), name, declaration });
    });
    const keys = new Set(constants.map(({ key }) => key));
    return { constants, keys, root, mentioned: replayer.mentioned() };
  }

  /** Return the environment with a constant added; throw if the kernel refuses it. */
  add(kernel, name, declaration) {
    const { rt, x } = this.lean;
    const result = x.lean_add_decl(kernel, HEARTBEATS, rt.keep(declaration), NO_CANCELLING);
    if (rt.tag(result) === 0) {
      throw new Refusal('forbidden', [`the kernel refuses ${name.join('.')}`]);
    }
    return rt.keptField(result, 0);
  }

  /** Step 3, for a constant that is not exported. */
  allow(name) {
    const { lean } = this;
    const object = lean.rt.makeName(name);
    const constant = lean.findConstant(lean.environment, object);
    const text = name.join('.');
    if (constant === null) throw new Refusal('forbidden', [`uses the unknown ${text}`]);
    const isAxiom = lean.originalKind(object, constant) === 'axiom';
    if (COMPILED.has(keyOf(name)) || (isAxiom && !AXIOMS.has(keyOf(name)))) {
      throw new Refusal('forbidden', [`uses ${text}`]);
    }
  }
}

const bad = (...reasons) => new Refusal('bad statement', reasons);

module.exports = { Judge };
