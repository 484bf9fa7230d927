/** Writes to records until it is killed: see `records-crash.ts`. */
import { armFaultPoints } from '../../server/src/lib/fault-point.ts';
import { openRecords } from '../../server/src/records/open-records.ts';

const [task, at, faults] = process.argv.slice(2);
const records = await openRecords(JSON.parse(at!) as { directory: string; database?: string });
// Not before: opening has transactions too.
armFaultPoints(JSON.parse(faults!) as Record<string, string>);

if (task === 'once')
  await records.transaction(async (tx) => {
    for (const name of ['one', 'two']) {
      await tx.projects.create(name);
      await tx.events.append({ type: `made.${name}` });
    }
  });

for (let n = 1; task === 'many'; n++) {
  await records.transaction(async (tx) => {
    await tx.projects.create(`a${n}`);
    await tx.events.append({ type: `made.${n}` });
    await tx.projects.create(`b${n}`);
  });
  process.stdout.write(`committed ${n}\n`);
}
await records.close();
