/** A fresh control plane for each test of a file. At the end of a test no background error may be left. */
import { ListSnapshotsSchema, type SandboxId, type Snapshot } from '@cay/sdk/protocol';
import { afterEach, beforeEach, expect } from 'vitest';
import type { Backend, Freezing, Snapshotting } from '../../backends/backend.ts';
import type { Control } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import { hibernatingBackend } from './hibernating-backend.ts';
import {
  asked,
  installation,
  memoryBackend,
  type Installation,
  type MemoryBackend,
  type TestControl,
} from './test-control.ts';
import { readText, writeText } from './text-file.ts';

type Options = Parameters<Installation['open']>[1];
type Input = Parameters<typeof asked>[0];

export interface ControlFixture {
  readonly place: Installation;
  /** The memory backend itself, and what the control plane got: the same, or a wrapper that hibernates. */
  readonly memory: MemoryBackend;
  readonly backend: Backend & Snapshotting & Freezing;
  readonly opened: TestControl;
  readonly control: Control;
  me(): Principal;
  /** Opens the control plane again, over the same records. */
  reopen(backend?: ControlFixture['backend']): Promise<void>;
  create(input?: Input): Promise<SandboxId>;
  /** A sandbox with this text in its file. */
  createWithText(text: string, input?: Input): Promise<SandboxId>;
  write(ref: string, text: string): Promise<void>;
  read(ref: string): Promise<string>;
  listed(query?: object): Promise<Snapshot[]>;
}

export function useControl({
  hibernates = false,
  ...options
}: { hibernates?: boolean } & Options = {}): ControlFixture {
  let place: Installation;
  let memory: MemoryBackend;
  let backend: ControlFixture['backend'];
  let opened: TestControl;

  beforeEach(async () => {
    place = installation();
    memory = memoryBackend();
    backend = hibernates ? hibernatingBackend(memory) : memory;
    opened = await place.open(backend, options);
  });
  afterEach(async () => {
    await opened.control.close();
    expect(opened.errors).toEqual([]);
    place.remove();
  });

  const fixture: ControlFixture = {
    get place() {
      return place;
    },
    get memory() {
      return memory;
    },
    get backend() {
      return backend;
    },
    get opened() {
      return opened;
    },
    get control() {
      return opened.control;
    },
    me: () => opened.principal,
    async reopen(given = backend) {
      backend = given;
      opened = await place.open(backend, options);
    },
    create: async (input = {}) => (await opened.control.create(opened.principal, asked(input))).sandbox.id,
    async createWithText(text, input) {
      const id = await fixture.create(input);
      await fixture.write(id, text);
      return id;
    },
    write: (ref, text) => writeText(opened, ref, text),
    read: (ref) => readText(opened, ref),
    listed: async (query = {}) =>
      (await opened.control.snapshots(opened.principal, ListSnapshotsSchema.parse(query))).snapshots,
  };
  return fixture;
}
