/**
 * One flow of datagrams: from one socket of a program to one target, and back.
 *
 * It is decided by name and port as a connection is, resolved once, and sent from a socket that takes
 * datagrams of the pinned address and port alone. A datagram beyond a limit is dropped, as networks do; a
 * flow beyond one is refused. It ends when it is idle, when a limit of bytes is reached, or because the
 * policy has changed.
 */
import { createSocket, type Socket } from 'node:dgram';
import { Allowance } from '../../lib/allowance.ts';
import { DatagramReader, frameDatagram, MAX_DATAGRAM } from '../../lib/datagram-frames.ts';
import type { OpenAttempt } from '../attempts.ts';
import { watchPlaceholders } from '../broker/watch-placeholders.ts';
import type { CarriedStream } from '../egress.ts';
import { admitAddress, decideAddress, decideName, type Decision } from '../policy/decide.ts';
import { udpLayers } from '../policy/udp-layers.ts';
import type { OpenConnection, SandboxEgress } from '../sandbox-egress.ts';
import { admittedAddresses, type ConnectionTarget, resolveTarget } from './addresses.ts';
import { type Direction, Meter } from './budget.ts';
import { Denial } from './denial.ts';
import { endAttempt } from './end-attempt.ts';
import type { Engine } from './engine.ts';
import { Holding } from './holding.ts';
import { refusalOf } from './refusal-of.ts';
import { suggestedRule } from './suggested-rule.ts';

/** Flows of one sandbox at once. The guest ends idle ones before it comes to that. */
export const MAX_FLOWS = 256;
/** Of one flow, in each direction. */
const DATAGRAMS = { burst: 1000, perSecond: 2000 };
/** Longer than a program waits for an answer, shorter than it would keep a source port from others. */
const IDLE_MS = 30_000;
/** A guest that does not read loses datagrams beyond this. */
const MAX_WAITING_BYTES = 65_536;
/** So long may a limit of bytes per second be overdrawn. */
const MAX_WAIT_MS = 100;

export class DatagramFlow implements OpenConnection {
  readonly isFlow = true as const;
  readonly #engine: Engine;
  readonly #sandbox: SandboxEgress;
  readonly #target: ConnectionTarget;
  readonly #stream: CarriedStream;
  readonly #began: number;
  readonly #holding: Holding;
  readonly #reader = new DatagramReader();
  readonly #allowed = { out: new Allowance(DATAGRAMS), in: new Allowance(DATAGRAMS) };
  readonly #notBefore = { out: 0, in: 0 };
  #meter: Meter;
  #attempt: OpenAttempt | undefined;
  #socket: Socket | undefined;
  #pinned: string | undefined;
  #ended = false;
  #lastActive: number;

  constructor(engine: Engine, sandbox: SandboxEgress, target: ConnectionTarget, stream: CarriedStream) {
    this.#engine = engine;
    this.#sandbox = sandbox;
    this.#target = target;
    this.#stream = stream;
    this.#began = this.#lastActive = engine.clock.steady();
    this.#meter = new Meter([sandbox.budget]);
    this.#holding = new Holding(sandbox.project, stream, (denial) => this.cut(denial));
    stream.duplex.once('close', () => this.#end(undefined));
    stream.duplex.once('end', () => this.#end(undefined));
  }

  /** Carries it until it ends. Never rejects. */
  async carry(): Promise<void> {
    const { name = null, address = null, port, process = null } = this.#target;
    this.#attempt = this.#sandbox.attempts.begin(
      { name, address, port, protocol: 'udp', process },
      this.#meter.bytes,
    );
    try {
      this.#holding.open();
      this.#sandbox.connections.add(this);
      const decision = this.#decide();
      if (decision.verdict !== 'allow') throw refusalOf(this.#target, decision, ' over UDP');
      this.#attempt.update({ rule: decision.rule ?? null });
      this.#openMeter(decision);
      if (this.#engine.proxy)
        throw new Denial('connect', "The operator's proxy carries no datagrams, so there are none");
      this.#take(await this.#connect(decision));
    } catch (error) {
      this.#end(Denial.from(error, 'connect', 'The flow failed inside the server'));
    }
  }

  #decide(): Decision {
    const { name, address, port } = this.#target;
    const policy = udpLayers(this.#sandbox.policy);
    return name === undefined
      ? decideAddress(policy, this.#engine.classify(address!), port)
      : decideName(policy, name, port);
  }

  #openMeter({ rules }: Decision): void {
    if (this.#sandbox.flows > MAX_FLOWS)
      throw new Denial('limit', `The sandbox has ${MAX_FLOWS} flows of datagrams open, which is the most`);
    this.#meter = new Meter(this.#sandbox.budgetsOf(rules), this.#meter.bytes);
    this.#meter.open();
  }

  async #connect({ rules }: Decision): Promise<Socket> {
    const resolved = await resolveTarget(this.#engine, this.#sandbox, this.#target, rules);
    const policy = udpLayers(this.#sandbox.policy);
    const [address] = admittedAddresses(this.#engine, policy, this.#target, resolved);
    if (this.#ended) throw new Denial('closed', 'The flow has ended');
    this.#pinned = address!;
    this.#attempt!.update({ address: address! });
    const socket = createSocket(address!.includes(':') ? 'udp6' : 'udp4');
    this.#socket = socket;
    await new Promise<void>((resolve, reject) => {
      const failed = () => reject(new Denial('connect', `There is no way to ${address}`));
      socket.once('error', failed);
      socket.connect(this.#target.port, address!, () => {
        socket.off('error', failed);
        resolve();
      });
    });
    if (this.#ended) throw new Denial('closed', 'The flow has ended');
    return socket;
  }

  #take(socket: Socket): void {
    const watch = watchPlaceholders(this.#engine, this.#sandbox.id);
    const { duplex } = this.#stream;
    socket.on('error', () => this.#end(new Denial('connect', 'The target does not take datagrams')));
    socket.on('message', (datagram) => {
      if (datagram.length > MAX_DATAGRAM || duplex.writableLength > MAX_WAITING_BYTES) return;
      this.#carrying(() => {
        if (!this.#spend('in', datagram.length)) return;
        this.#holding.arrived(datagram.length);
        duplex.write(frameDatagram(datagram));
      });
    });
    this.#stream.accept();
    duplex.on('data', (chunk: Buffer) =>
      this.#carrying(() => {
        for (const datagram of this.#reader.push(chunk)) {
          watch?.scan(datagram);
          if (this.#ended || !this.#spend('out', datagram.length)) continue;
          socket.send(datagram, ignoreLoss);
        }
      }),
    );
  }

  #carrying(work: () => void): void {
    if (this.#ended) return;
    try {
      work();
    } catch (error) {
      this.#end(Denial.from(error, 'ambiguous_request', 'The guest sends no datagrams'));
    }
  }

  /** Whether a datagram may go on. One that comes too soon is dropped. Throws a `Denial` beyond a total. */
  #spend(direction: Direction, bytes: number): boolean {
    const now = this.#engine.clock.steady();
    if (now < this.#notBefore[direction] || !this.#allowed[direction].take()) return false;
    this.#lastActive = now;
    this.#notBefore[direction] = now + this.#meter.spend(direction, bytes) - MAX_WAIT_MS;
    return true;
  }

  recheck(): void {
    if (this.#ended) return;
    const { name, port } = this.#target;
    const there =
      name === undefined ||
      this.#pinned === undefined ||
      admitAddress(udpLayers(this.#sandbox.policy), name, this.#engine.classify(this.#pinned), port)
        .verdict === 'allow';
    if (this.#decide().verdict !== 'allow' || !there)
      this.cut(new Denial('policy_changed', 'The network policy has changed and does not allow this flow'));
  }

  tick(): void {
    const now = this.#engine.clock.steady();
    if (now - this.#lastActive > IDLE_MS) this.#end(undefined);
    else if (now - this.#began > this.#engine.timeouts.totalMs)
      this.cut(new Denial('idle', 'The flow is too old'));
  }

  cut(denial: Denial): void {
    this.#end(denial);
  }

  #end(denial: Denial | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#sandbox.connections.delete(this);
    this.#holding.close();
    this.#meter.close();
    this.#socket?.close();
    if (this.#attempt) endAttempt(this.#attempt, denial, () => suggestedRule(this.#target, true));
    const { duplex } = this.#stream;
    // What is refused makes the guest take no more for this target; a limit is of this flow alone.
    if (denial?.denied && denial.reason !== 'limit') this.#stream.refuse(denial.toError());
    else if (!duplex.destroyed) duplex.resume().end(() => duplex.destroy());
  }
}

/** A datagram that cannot be sent is lost. An error of the target comes as an event, too. */
const ignoreLoss = (): void => {};
