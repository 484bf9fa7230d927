import { join } from 'node:path';
import { CayError, type AuditEvent, type AuditVerdict } from '@cay/sdk/client';
import { openClient } from '../lib/client.ts';
import { withCommonOptions } from '../lib/common-options.ts';
import { colour, print, printJson } from '../lib/output.ts';
import { runningServer } from '../lib/running-server.ts';
import { dataDirOf, isOwnServer, type CommonOptions } from '../lib/settings.ts';
import { parseMoment } from '../lib/units.ts';
import type { Verb } from '../verb.ts';

type ExportOptions = CommonOptions & {
  sandbox?: string;
  type?: string;
  key?: string;
  since?: Date;
  until?: Date;
};

export const auditVerb: Verb = (program) => {
  const command = program.command('audit').description('the chain of events');

  const verify = command
    .command('verify')
    .description(
      'check that no event was changed, removed, inserted or moved; works without a running server, too',
    );
  withCommonOptions(verify).action(async (options: CommonOptions) => {
    const verdict = await verdictOf(options);
    if (options.json) printJson(verdict);
    else show(verdict);
    if (verdict.broken) throw broken(verdict.broken);
  });

  const exporting = command
    .command('export')
    .description('print events as lines of JSON, with their hashes')
    .option('--sandbox <id>', 'of this sandbox alone')
    .option('--type <type>', 'of this type alone, such as command.started')
    .option('--key <id>', 'by this key alone')
    .option('--since <time>', 'from then on, as 2026-01-31 or 2026-01-31T12:00:00Z', parseMoment)
    .option('--until <time>', 'before then', parseMoment);
  withCommonOptions(exporting, { json: false }).action(
    async ({ sandbox, type, key, since, until, ...options }: ExportOptions) => {
      const query = { sandbox, type, key, since: since?.toISOString(), until: until?.toISOString() };
      for await (const event of openClient(options).transport.lines<AuditEvent>('GET', '/v1/audit/export', {
        query,
      })) {
        if (!process.stdout.write(`${JSON.stringify(event)}\n`))
          await new Promise((resolve) => process.stdout.once('drain', resolve));
      }
    },
  );
};

async function verdictOf(options: CommonOptions): Promise<AuditVerdict> {
  const dataDir = dataDirOf(options);
  if (!isOwnServer(options) || runningServer(dataDir))
    return openClient(options).transport.json('GET', '/v1/audit/verify');
  const { verifyOffline } = await import('../../control/events/verify-offline.ts');
  return verifyOffline(join(dataDir, 'control'));
}

function show({ ok, events, first, last, head, pruned, gaps, checkpoints, sealed }: AuditVerdict): void {
  const of = first === null ? 'no events' : `${events} events, ${first} to ${last}`;
  print(
    `${ok ? colour.green('ok') : colour.red('broken')}  ${of}${pruned > 0 ? `, those up to ${pruned} pruned` : ''}${gaps > 0 ? `, others pruned in ${gaps} places` : ''}`,
  );
  print(`head  ${head}`);
  print(`seals ${sealed ? `${checkpoints} checkpoints` : 'not checked: the key is missing'}`);
}

function broken({ id, reason }: NonNullable<AuditVerdict['broken']>): CayError {
  return new CayError('failed_precondition', `The chain of events is broken at event ${id}: ${reason}`, {
    details: { id },
    hint: 'events before it are as they were recorded',
  });
}
