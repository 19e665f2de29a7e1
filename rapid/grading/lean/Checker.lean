import Lean
/-!
The protocol of checker.js for a native Lean: one JSON request a line, one JSON answer a line.

    lean --run Checker.lean

Requests and verdicts are those of checker.js and verify.js. Two things differ: the axioms are an
allow list, since here the library's theorems can be told from axioms, and there is no snapshot:
every proof starts from the environment after the header, which is a value and does not change.
-/
open Lean Elab

namespace RapidChecker

/-- What a native Lean's library may rest on. -/
def trustedAxioms : List Name := [``propext, ``Classical.choice, ``Quot.sound]
def kernelHeartbeats : USize := 200000000
def maxMessages : Nat := 5
def maxCharacters : Nat := 500

/-- One command of a text, elaborated. `isWhole`: nothing is left of the text after it. -/
structure Outcome where
  env : Environment
  stx : Syntax
  parserMessages : MessageLog
  messages : MessageLog
  isWhole : Bool

/-- Parse and elaborate the first command of `text` from the state after the header. -/
def elaborate (base : Command.State) (text : String) : IO Outcome := do
  let input := Parser.mkInputContext text "proof.lean"
  let scope := base.scopes.head!
  let context : Parser.ParserModuleContext :=
    { env := base.env, options := scope.opts,
      currNamespace := scope.currNamespace, openDecls := scope.openDecls }
  let (stx, parser, parserMessages) := Parser.parseCommand input context {} {}
  let (rest, _, restMessages) := Parser.parseCommand input context parser {}
  let state ← IO.mkRef { base with messages := {} }
  let commandContext : Command.Context :=
    { fileName := "proof.lean", fileMap := input.fileMap, snap? := none, cancelTk? := none }
  let _ ← ((Command.elabCommandTopLevel stx).run commandContext state).toIO'
  let after ← state.get
  return {
    env := after.env, stx, parserMessages,
    messages := parserMessages ++ after.messages,
    isWhole := rest.isOfKind ``Parser.Command.eoi && !restMessages.hasErrors }

def isTheorem (stx : Syntax) : Bool :=
  stx.isOfKind ``Parser.Command.declaration && stx[1].isOfKind ``Parser.Command.theorem

/-- What a replay has reached: the environment that the kernel checks in, and the names seen. -/
structure Replay where
  env : Environment
  seen : NameSet := {}

/-- A new constant as the kernel's declaration, where it is of a kind that a theorem may add. -/
def asDeclaration? : ConstantInfo → Option Declaration
  | .defnInfo value => some (.defnDecl value)
  | .thmInfo value => some (.thmDecl value)
  | .opaqueInfo value => some (.opaqueDecl value)
  | _ => none

/-- Check again, in the environment of the header, each new constant that `name` rests on.
Throws what is wrong with one. -/
partial def replay (base env : Environment) (name : Name) : StateT Replay (Except String) Unit := do
  if (← get).seen.contains name then return
  modify fun state => { state with seen := state.seen.insert name }
  if name == ``Lean.reduceBool || name == ``Lean.reduceNat then throw s!"uses {name}"
  let some constant := env.find? name | throw s!"uses the unknown {name}"
  if let .axiomInfo _ := constant then
    unless trustedAxioms.contains name do throw s!"uses the axiom {name}"
  let body := (constant.value? (allowOpaque := true)).map (·.getUsedConstants) |>.getD #[]
  for used in constant.type.getUsedConstants ++ body do
    replay base env used
  if base.contains name then return
  let some declaration := asDeclaration? constant | throw s!"adds {name}, which is no theorem"
  match (← get).env.addDeclCore kernelHeartbeats declaration none with
  | .ok checked => modify fun state => { state with env := checked }
  | .error _ => throw s!"the kernel refuses {name}"

def isSorry (message : Message) : Bool := message.kind == `hasSorry

/-- The reason and its explanation, as in verify.js. -/
def check (base : Command.State) (name : Name) (statement proof : String) :
    IO (String × List String) := do
  let show' (log : MessageLog) : IO (List String) := log.toList.mapM fun message => do
    return s!"line {message.pos.line}: {← message.data.toString}"
  let trusted ← elaborate base (statement ++ " sorry")
  let some goal := trusted.env.find? name | return ("bad statement", ← show' trusted.messages)
  if trusted.messages.hasErrors || !trusted.isWhole then
    return ("bad statement", ← show' trusted.messages)
  let proved ← elaborate base (statement ++ proof)
  unless isTheorem proved.stx do return ("unparsable", ["not a theorem"])
  if proved.parserMessages.hasErrors then return ("unparsable", ← show' proved.messages)
  unless proved.isWhole do return ("unparsable", ["text after the theorem"])
  if proved.messages.hasErrors then return ("wrong_answer", ← show' proved.messages)
  if proved.messages.toList.any isSorry then return ("forbidden", ["sorry"])
  let some (.thmInfo value) := proved.env.find? name
    | return ("forbidden", [s!"{name} is not a theorem afterwards"])
  unless value.type == goal.type do return ("forbidden", ["the statement changed"])
  match (replay base.env proved.env name).run { env := base.env } with
  | .ok _ => return ("passed", [])
  | .error refusal => return ("forbidden", [refusal])

/-- Import and elaborate the header. Throws its first error. -/
def importHeader (text : String) : IO Command.State := do
  let input := Parser.mkInputContext (text ++ "\n") "header.lean"
  let (header, parser, messages) ← Parser.parseHeader input
  let (env, messages) ← processHeader header {} messages input
  let state := (← IO.processCommands input parser (Command.mkState env messages {})).commandState
  for message in state.messages.toList do
    if message.severity matches .error then throw <| .userError (← message.data.toString)
  return state

def send (answer : Json) : IO Unit := do
  let stdout ← IO.getStdout
  stdout.putStrLn answer.compress
  stdout.flush

def fieldOf (request : Json) (field : String) : IO String :=
  IO.ofExcept (request.getObjValAs? String field)

def judge (base : Command.State) (request : Json) : IO Unit := do
  let name := (← fieldOf request "name").toName
  let (why, messages) ←
    try check base name (← fieldOf request "statement") (← fieldOf request "proof")
    catch error => pure ("crashed", [toString error])
  let shown := (messages.take maxMessages).map fun message => s!"{message.take maxCharacters}"
  send <| Json.mkObj [
    ("id", toJson (← fieldOf request "id")), ("ok", toJson (why == "passed")),
    ("why", toJson why), ("messages", toJson shown)]

def serve : IO Unit := do
  let stdin ← IO.getStdin
  let header ← fieldOf (← IO.ofExcept (Json.parse (← stdin.getLine))) "header"
  let base ←
    try importHeader header
    catch error =>
      send <| Json.mkObj [("ready", toJson false), ("why", toJson (toString error))]
      return
  send <| Json.mkObj [("ready", toJson true)]
  repeat
    let line ← stdin.getLine
    if line.isEmpty then break
    judge base (← IO.ofExcept (Json.parse line))

end RapidChecker

unsafe def main : IO Unit := do
  enableInitializersExecution
  initSearchPath (← findSysroot)
  RapidChecker.serve
