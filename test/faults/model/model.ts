/**
 * What the suite knows of an installation: simple facts, each as the set of what it may be. An acknowledged
 * change leaves one possibility; a call whose outcome is unknown leaves both; what a check sees decides.
 */
export type State = 'active' | 'stopped' | 'paused' | 'failed';

export interface Snapshot {
  id: string;
  /** What the note said. */
  note: Set<string>;
  turn: number | null;
}

export interface Launched {
  id: string;
  /** Everything that it prints before it exits with 7. */
  output: string;
}

export interface Box {
  id: string;
  states: Set<State>;
  /** The content of one file; `''` before it was ever written. */
  note: Set<string>;
  /**
   * Words that were each appended to the log by a command that is to run once; true if that was acknowledged.
   */
  words: Map<string, boolean>;
  snapshots: Map<string, Snapshot>;
  /** Some may have been taken without an answer. */
  unknownSnapshots: boolean;
  launched: Map<string, Launched>;
  /** Its possible limits, once a resize was asked for. */
  memoryBytes: Set<number> | undefined;
  lastTurn: number;
  /** A removal has begun whose outcome is unknown. */
  leaving: boolean;
  /** A worker has claimed it. */
  taken: boolean;
  /** Its processes may have been killed from outside. */
  hurt: boolean;
}

export interface Model {
  boxes: Map<string, Box>;
  /** Creations without an answer, by their idempotency keys. */
  unanswered: Map<string, 'create'>;
  removed: Set<string>;
  /** Some children of a fork may exist whose ids were in no answer. */
  unknownChildren: boolean;
  /** Whatever needs room may be refused. */
  full: boolean;
  /** Until then the server may pause unused sandboxes, because the machine was short of something. */
  pressedUntilMs: number;
  /** How many of each operation are under way. */
  underWay: Map<string, number>;
  /** What was seen during operations that cannot be true. */
  findings: string[];
  acknowledged: number;
  refused: number;
  unknown: number;
}

export function newModel(): Model {
  return {
    boxes: new Map(),
    unanswered: new Map(),
    removed: new Set(),
    unknownChildren: false,
    full: false,
    pressedUntilMs: 0,
    underWay: new Map(),
    findings: [],
    acknowledged: 0,
    refused: 0,
    unknown: 0,
  };
}

export function newBox(id: string, from?: Pick<Box, 'note' | 'words'>): Box {
  return {
    id,
    states: new Set(['active']),
    note: new Set(from?.note ?? ['']),
    words: new Map(from?.words),
    snapshots: new Map(),
    unknownSnapshots: false,
    launched: new Map(),
    memoryBytes: undefined,
    lastTurn: 0,
    leaving: false,
    taken: false,
    hurt: false,
  };
}
