/**
 * One carried connection to a peer: another sandbox of a network that both are in. It is decided by that
 * alone, and its bytes are copied. It ends when one of the two leaves the network.
 */
import type { Duplex } from 'node:stream';
import type { OpenAttempt } from '../attempts.ts';
import { watchPlaceholders } from '../broker/watch-placeholders.ts';
import type { CarriedStream } from '../egress.ts';
import type { Peer, PeerAccess } from '../peers.ts';
import type { OpenConnection, SandboxEgress } from '../sandbox-egress.ts';
import { Meter } from './budget.ts';
import { copyBoth } from './copy-both.ts';
import { Denial } from './denial.ts';
import { endAttempt } from './end-attempt.ts';
import type { Engine } from './engine.ts';
import { Holding } from './holding.ts';

export interface PeerTarget {
  readonly name: string;
  readonly port: number;
  readonly process: string | undefined;
  /** Who has that name now. */
  find(): Peer | undefined;
}

export class PeerConnection implements OpenConnection {
  readonly isToPeer = true as const;
  readonly #engine: Engine;
  readonly #sandbox: SandboxEgress;
  readonly #target: PeerTarget;
  readonly #stream: CarriedStream;
  readonly #began: number;
  readonly #given = new AbortController();
  readonly #meter: Meter;
  readonly #holding: Holding;
  #attempt: OpenAttempt | undefined;
  #peer: Peer | undefined;
  #upstream: Duplex | undefined;
  #ended = false;
  #lastActive: number;

  constructor(engine: Engine, sandbox: SandboxEgress, target: PeerTarget, stream: CarriedStream) {
    this.#engine = engine;
    this.#sandbox = sandbox;
    this.#target = target;
    this.#stream = stream;
    this.#began = this.#lastActive = engine.clock.steady();
    this.#meter = new Meter([sandbox.budget]);
    this.#holding = new Holding(sandbox.project, stream, (denial) => this.cut(denial));
    stream.duplex.once('close', () => this.#end(undefined));
  }

  /** Carries it until it ends. Never rejects. */
  async carry(access: PeerAccess): Promise<void> {
    const { name, port, process = null } = this.#target;
    this.#attempt = this.#sandbox.attempts.begin(
      { name, address: null, port, protocol: 'tcp', process },
      this.#meter.bytes,
    );
    try {
      this.#holding.open();
      this.#sandbox.connections.add(this);
      this.#meter.open();
      this.#peer = this.#target.find();
      if (!this.#peer) throw left();
      this.#attempt.update({ rule: `network: ${this.#peer.network}` });
      this.#copy(await this.#dial(access, this.#peer));
    } catch (error) {
      this.#end(Denial.from(error, 'connect', `Port ${port} of ${name} does not answer`));
    }
  }

  async #dial(access: PeerAccess, { id }: Peer): Promise<Duplex> {
    const signal = AbortSignal.any([
      this.#given.signal,
      AbortSignal.timeout(this.#engine.timeouts.connectMs),
    ]);
    const upstream = await access.connect(id, this.#target.port, signal);
    if (!this.#ended) return upstream;
    upstream.destroy();
    throw new Denial('closed', 'The connection has ended');
  }

  #copy(upstream: Duplex): void {
    this.#upstream = upstream;
    this.#holding.add(upstream);
    upstream.on('error', () => {});
    this.#stream.accept();
    const watch = watchPlaceholders(this.#engine, this.#sandbox.id);
    copyBoth(this.#stream.duplex, upstream, {
      out: (chunk) => {
        watch?.scan(chunk);
        this.#touch();
        return this.#meter.spend('out', chunk.length);
      },
      in: (chunk) => {
        this.#touch();
        this.#holding.arrived(chunk.length);
        return this.#meter.spend('in', chunk.length);
      },
      end: (denial) => this.#end(denial),
    });
  }

  #touch(): void {
    this.#lastActive = this.#engine.clock.steady();
  }

  recheck(): void {
    if (this.#peer && this.#target.find()?.id !== this.#peer.id) this.cut(left());
  }

  tick(): void {
    const { clock, timeouts } = this.#engine;
    const now = clock.steady();
    if (now - this.#lastActive > timeouts.idleMs || now - this.#began > timeouts.totalMs)
      this.cut(new Denial('idle', 'The connection is idle or too old'));
  }

  cut(denial: Denial): void {
    this.#end(denial);
  }

  #end(denial: Denial | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#given.abort();
    this.#sandbox.connections.delete(this);
    this.#holding.close();
    this.#meter.close();
    this.#upstream?.destroy();
    if (this.#attempt) endAttempt(this.#attempt, denial);
    const { duplex } = this.#stream;
    if (denial) this.#stream.refuse(denial.toError());
    else if (!duplex.destroyed && !(duplex.readableEnded && duplex.writableFinished)) duplex.destroy();
  }
}

const left = () => new Denial('policy_changed', 'The two sandboxes share no network any more');
