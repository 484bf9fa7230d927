import pg from 'pg';
import { CayError } from '@cay/sdk/protocol';

const SERIALIZATION_FAILURES = new Set(['40001', '40P01']);

export function isSerializationFailure(error: unknown): boolean {
  return error instanceof pg.DatabaseError && SERIALIZATION_FAILURES.has(error.code ?? '');
}

/** Codes of a server that shuts down, starts, or has no connection left. */
const AWAY = new Set(['57P01', '57P02', '57P03', '53300', '25P03']);
/** No disk, no memory. */
const FULL = new Set(['53100', '53200']);
/** The database, user or password is wrong. */
const REFUSED = /^(28|3D)/;

/** Only an answer of the database is a `DatabaseError`: all else is a connection that failed. */
export function postgresError(error: unknown): unknown {
  if (error instanceof CayError) return error;
  if (!(error instanceof pg.DatabaseError)) return unavailable(error);
  const code = error.code ?? '';
  if (AWAY.has(code) || code.startsWith('08')) return unavailable(error);
  if (FULL.has(code))
    return new CayError('resource_exhausted', 'Cannot write the records: the disk of the database is full', {
      hint: 'remove sandboxes that are not needed, or make room on the disk of the database',
      cause: error,
    });
  if (REFUSED.test(code))
    return new CayError('failed_precondition', `The database refuses the connection: ${error.message}`, {
      hint: 'check user, password and name of the database in --database',
      cause: error,
    });
  return error;
}

function unavailable(cause: unknown): CayError {
  return new CayError('unavailable', 'The database of the records does not answer', {
    hint: 'see that PostgreSQL runs and can be reached; the server connects again by itself',
    cause,
  });
}
