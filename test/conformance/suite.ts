import {
  SandboxSpecSchema,
  isCayError,
  newId,
  type Ability,
  type Capabilities,
  type ErrorCode,
  type SandboxId,
  type SandboxSpec,
  type SandboxSpecInput,
  type SnapshotId,
} from '@cay/sdk/protocol';
import { afterAll, beforeAll, expect, it, type TestContext } from 'vitest';
import type {
  AbilityName,
  Backend,
  BackendAbilities,
  Snapshotting,
} from '../../server/src/backends/backend.ts';
import { makeBox, type Box } from './box.ts';
import type { TestPlatform, PlatformFactory, SuiteOptions } from './test-platform.ts';

export interface CaseContext {
  /** Ends the case as skipped, and has the reason printed. */
  skip(reason: string): never;
}

/** What the areas of a suite share: the platform they stand on, and how a case is declared. */
export interface Suite {
  readonly options: SuiteOptions;
  readonly platform: TestPlatform;
  readonly backend: Backend;
  readonly capabilities: Capabilities;
  /** The strongest user of a sandbox: `root`, or the default one where that is the only one. */
  readonly strongest: string;
  /** The platform's spec with `overrides` laid over it, and all defaults filled in. */
  spec(overrides?: SandboxSpecInput): SandboxSpec;
  /** Makes a sandbox that is removed at the end of the case. */
  box(overrides?: SandboxSpecInput): Promise<Box>;
  /** An id whose sandbox, if there comes to be one, is removed at the end of the case. */
  id(): SandboxId;
  /** The sandbox of that id, made to run, with a directory of the case's own. */
  wake(id: SandboxId, overrides?: SandboxSpecInput): Promise<Box>;
  /** The verbs of an ability that the capabilities promise. */
  ability<A extends AbilityName>(name: A): BackendAbilities[A];
  /** The same for `snapshots`. */
  readonly snapshots: Snapshotting;
  /** An id whose snapshot, if there comes to be one, is removed at the end of the case. */
  snapshotId(): SnapshotId;
  /** Takes a snapshot that is removed at the end of the case. */
  snapshot(id: SandboxId, options?: { memory?: boolean }): Promise<SnapshotId>;
  /** Makes a sandbox of a snapshot, and makes it run. */
  clone(snapshot: SnapshotId, overrides?: SandboxSpecInput, options?: { memory?: boolean }): Promise<Box>;
  /** A case that needs the abilities named. */
  case(
    title: string,
    needs: Ability[],
    run: (context: CaseContext) => Promise<void>,
    timeoutMs?: number,
  ): void;
  /** Like `case`, in a sandbox that the cases of one area share, each in a directory of its own. */
  inBox(
    title: string,
    needs: Ability[],
    run: (box: Box, context: CaseContext) => Promise<void>,
    timeoutMs?: number,
  ): void;
  /** Called in each area: makes its shared sandbox, and removes it. */
  share(overrides?: SandboxSpecInput): void;
  /** Takes the backend away and puts the one of `restart()` in its place. */
  restart(): Promise<void>;
}

export function makeSuite(name: string, factory: PlatformFactory, options: SuiteOptions): Suite {
  let platform: TestPlatform;
  let capabilities: Capabilities;
  let shared: Box | undefined;
  let directories = 0;
  const skipped: { title: string; reason: string }[] = [];
  const own = new Set<SandboxId>();
  const ownSnapshots = new Set<SnapshotId>();

  beforeAll(async () => {
    platform = await factory();
    capabilities = await platform.backend.capabilities();
  });

  afterAll(async () => {
    if (skipped.length > 0) console.info(summary(name, skipped));
    await platform?.cleanup();
  });

  async function boxOf(id: SandboxId): Promise<Box> {
    const guest = await platform.backend.connect(id);
    const dir = `/home/user/case-${++directories}`;
    const box = makeBox(id, guest, dir, suite.strongest);
    await box.files.mkdir(dir);
    return box;
  }

  async function removeOwn(): Promise<void> {
    const ids = [...own];
    own.clear();
    await Promise.all(ids.map((id) => platform.backend.remove(id)));
    const snapshots = [...ownSnapshots];
    ownSnapshots.clear();
    for (const id of snapshots) await suite.snapshots.removeSnapshot(id);
  }

  async function guarded(
    title: string,
    needs: Ability[],
    test: TestContext,
    run: (context: CaseContext) => Promise<void>,
  ): Promise<void> {
    const skip = (reason: string): never => {
      skipped.push({ title, reason });
      test.skip(reason);
      throw new Error(reason);
    };
    const known = options.skip?.[title];
    if (known !== undefined) skip(known);
    const missing = needs.find((ability) => !capabilities.abilities[ability]);
    if (missing !== undefined) skip(`no ${missing}: ${capabilities.notes[missing] ?? 'no reason was given'}`);
    try {
      await run({ skip });
    } finally {
      await removeOwn();
    }
  }

  const suite: Suite = {
    options,
    get platform() {
      return platform;
    },
    get backend() {
      return platform.backend;
    },
    get capabilities() {
      return capabilities;
    },
    get strongest() {
      return capabilities.abilities.users ? 'root' : 'user';
    },
    spec(overrides = {}) {
      const base = platform.spec ?? {};
      const limits = { ...base.limits, ...overrides.limits };
      return SandboxSpecSchema.parse({ ...base, ...overrides, limits });
    },
    id() {
      const id = newId('sbx');
      own.add(id);
      return id;
    },
    async box(overrides) {
      const id = suite.id();
      return suite.wake(id, overrides);
    },
    async wake(id, overrides) {
      await platform.backend.ensure(id, suite.spec(overrides));
      return boxOf(id);
    },
    ability(name) {
      const found = platform.backend.ability(name);
      if (!found) throw new Error(`the capabilities say "${name}", and the backend has no such ability`);
      return found;
    },
    get snapshots() {
      return suite.ability('snapshots');
    },
    snapshotId() {
      const id = newId('snap');
      ownSnapshots.add(id);
      return id;
    },
    async snapshot(id, options) {
      const snapshot = suite.snapshotId();
      await suite.snapshots.snapshot(id, snapshot, options);
      return snapshot;
    },
    async clone(snapshot, overrides, options) {
      const id = suite.id();
      await suite.snapshots.clone(id, suite.spec(overrides), snapshot, options);
      return suite.wake(id, overrides);
    },
    case(title, needs, run, timeoutMs) {
      it(title, (test) => guarded(title, needs, test, run), timeoutMs);
    },
    inBox(title, needs, run, timeoutMs) {
      suite.case(title, needs, async (context) => run(await boxOf(shared!.id), context), timeoutMs);
    },
    share(overrides) {
      beforeAll(async () => {
        const id = newId('sbx');
        await platform.backend.ensure(id, suite.spec(overrides));
        shared = await boxOf(id);
      });
      afterAll(async () => {
        if (shared) await platform.backend.remove(shared.id);
        shared = undefined;
      });
    },
    async restart() {
      await platform.backend.close();
      platform.backend = await platform.restart!();
    },
  };
  return suite;
}

/** One line a reason, so that what is missing reads as a list of facts and not of titles. */
function summary(name: string, skipped: { title: string; reason: string }[]): string {
  const byReason = Map.groupBy(skipped, ({ reason }) => reason);
  const lines = [...byReason].map(([reason, cases]) => `  ${cases.length} × ${reason}`);
  return [`${name}: ${skipped.length} skipped:`, ...lines].join('\n');
}

/** Asserts that it rejects with a CayError of one of these codes, and gives the error. */
export async function rejects(promise: Promise<unknown>, ...codes: ErrorCode[]) {
  const error = await promise.then(
    (value) =>
      expect.fail(
        `Expected a rejection with ${codes.join(' or ')}, but it resolved with ${JSON.stringify(value)}`,
      ),
    (reason: unknown) => reason,
  );
  if (!isCayError(error)) throw error;
  expect(codes, error.message).toContain(error.code);
  return error;
}

/** `command -v`, for programs that not every image has. */
export async function hasProgram(box: Box, program: string): Promise<boolean> {
  return (await box.run(`command -v ${program}`)).exitCode === 0;
}
