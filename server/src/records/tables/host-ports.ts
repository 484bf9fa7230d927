import { CayError, type SandboxId } from '@cay/sdk/protocol';
import type { TableContext } from './table-context.ts';

/** A port of the server's machine that leads to a port of a sandbox. */
export interface HostPortRow {
  protocol: 'tcp' | 'udp';
  hostPort: number;
  address: string;
  port: number;
  sandbox: SandboxId;
  project: string;
}

/** Rows end with their sandbox. */
export interface HostPortRecords {
  /** Rejects `conflict` if the port of the machine leads to a sandbox already. */
  insert(row: HostPortRow): Promise<void>;
  /** By port of the machine; of one sandbox, or of all. */
  list(sandbox?: string): Promise<HostPortRow[]>;
  count(project: string): Promise<number>;
  /** Resolves whether there was one. */
  delete(sandbox: string, protocol: HostPortRow['protocol'], hostPort: number): Promise<boolean>;
}

export function hostPortTable({ sql }: TableContext): HostPortRecords {
  return {
    async insert({ protocol, hostPort, address, port, sandbox, project }) {
      const inserted = await sql.run(
        `INSERT INTO host_ports (protocol, host_port, address, port, sandbox, project)
         VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
        ...[protocol, hostPort, address, port, sandbox, project],
      );
      if (inserted === 0)
        throw new CayError(
          'conflict',
          `Port ${hostPort} of the server's machine leads to a sandbox already`,
          {
            details: { hostPort },
            hint: 'choose another port, or 0 for a free one',
          },
        );
    },
    list(sandbox) {
      const of = sandbox === undefined ? '' : 'WHERE sandbox = ?';
      return sql.all<HostPortRow>(
        `SELECT protocol, host_port AS "hostPort", address, port, sandbox, project
         FROM host_ports ${of} ORDER BY host_port`,
        ...(sandbox === undefined ? [] : [sandbox]),
      );
    },
    count: async (project) =>
      (await sql.get<{ count: number }>(
        'SELECT count(*) AS count FROM host_ports WHERE project = ?',
        project,
      ))!.count,
    delete: async (sandbox, protocol, hostPort) =>
      (await sql.run(
        'DELETE FROM host_ports WHERE sandbox = ? AND protocol = ? AND host_port = ?',
        ...[sandbox, protocol, hostPort],
      )) > 0,
  };
}
