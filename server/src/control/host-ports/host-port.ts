/**
 * Host ports: ports of the server's machine that lead to ports of sandboxes, for clients that speak anything
 * over TCP or UDP and have no key.
 *
 * *Terms.* To *publish* a port of a sandbox is to listen on a port of the machine for it. Who can reach that
 * port can use it: the operator says on which addresses and ports that is allowed, loopback alone by default.
 *
 * *Who calls.* The REST API for each request, and creates for the ports that they ask for.
 *
 * *Order.* The server listens before it records, because only that tells whether the port is free; it stops
 * listening if the record is not written. What is recorded is listened on again when a server starts. A port
 * that another program has by then is tried again until it is free.
 *
 * *Concurrency.* A port of the machine leads to one sandbox; of two calls that want the same, one is refused.
 * Servers that share a database all listen, each on its own machine.
 *
 * *Errors.* `conflict` for a port that is taken, `permission_denied` for what the operator does not allow,
 * `resource_exhausted` beyond the quota of the project.
 *
 * *Cost.* A connection is a stream to the guest, and so is what one client sends over UDP. It counts as one
 * of a visitor, and wakes a paused sandbox.
 *
 *     const wanted = PublishPortSchema.parse({ port: 5432 });
 *     const { hostPort } = await hostPorts.publish(me, 'db', wanted);        // a free one
 *     await connect(hostPort, '127.0.0.1');
 *     await hostPorts.unpublish(me, 'db', hostPort, 'tcp');
 */
import type { PublishedPort, PublishPort } from '@cay/sdk/protocol';
import type { Principal } from '../tenants/principal.ts';

export interface HostPortVerbs {
  publish(principal: Principal, ref: string, wanted: PublishPort): Promise<PublishedPort>;
  /** Ends the connections that it led, too. A port that is not published is `not_found`. */
  unpublish(
    principal: Principal,
    ref: string,
    hostPort: number,
    protocol: PublishedPort['protocol'],
  ): Promise<void>;
  published(principal: Principal, ref: string): Promise<PublishedPort[]>;
}
